//! This program in another role, as a process of its own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Far above what anything here takes: only a test that fails waits for so long.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A process that ends when its standard input does, and is killed with its handle.
pub struct Child {
    role: String,
    process: Process,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    pub fn start(role: &str, arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut process = Command::new(program)
            .args(["child", role])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            role: format!("{role} {}", process.id()),
            process,
            input,
            lines,
        }
    }

    /// The next line that it says.
    pub fn line(&self) -> String {
        self.line_within(LIMIT).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same with another limit; or why there is none.
    pub fn line_within(&self, limit: Duration) -> Result<String, String> {
        let line = self.lines.recv_timeout(limit);
        line.map_err(|error| format!("{} says nothing: {error}", self.role))
    }

    /// Ends its standard input, which tells it to come to an end.
    pub fn finish(&mut self) {
        self.input = None;
    }

    /// Kills it as nothing can be caught.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.status().is_none()
    }

    /// How it has ended, if it has.
    pub fn status(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("it is ours")
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// How much it has computed.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it runs");
        // The name before it is in parentheses and may contain any character. Linux counts hundredths of a second.
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(10 * ticks)
    }

    /// Waits for its end.
    pub fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("it is ours") {
                return status;
            }
            assert!(begun.elapsed() < LIMIT, "{} does not end", self.role);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// In the child: says something to the parent. One that has gone away is not an error.
pub fn say(line: &str) {
    use std::io::Write as _;
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// In the child: returns when the parent says that it is time to end, or is gone.
pub fn wait_for_the_end() {
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

/// The same in async code.
pub async fn end() {
    let _ = tokio::task::spawn_blocking(wait_for_the_end).await;
}

/// A runtime as a service has one.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}
