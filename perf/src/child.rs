//! Runs this program as a child process in another role.

use std::io::{BufRead as _, BufReader};
use std::process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The time limit for everything that waits: far above the expected time, so only a failure reaches it.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A child process. It ends when its standard input is closed, and is killed when this handle is dropped.
pub struct Child {
    role: String,
    process: Process,
    stdin: Option<ChildStdin>,
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
            .expect("this program can be started");
        let stdin = process.stdin.take();
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
            stdin,
            lines,
        }
    }

    /// The next line of its standard output. Panics after [`LIMIT`].
    pub fn line(&self) -> String {
        self.line_within(LIMIT).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The next line of its standard output, within `limit`.
    pub fn line_within(&self, limit: Duration) -> Result<String, String> {
        let line = self.lines.recv_timeout(limit);
        line.map_err(|error| format!("no line from {}: {error}", self.role))
    }

    /// The lines that it has printed since the last one that was taken, without waiting for more.
    pub fn lines_so_far(&self) -> impl Iterator<Item = String> {
        self.lines.try_iter()
    }

    /// Closes its standard input, which asks it to end.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Kills it with SIGKILL, and reaps it.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is a child of this process");
        self.process.wait().expect("it is a child of this process");
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        self.exit_status().is_none()
    }

    /// Its exit status, if it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().expect("it is a child of this process")
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its CPU time so far.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it is running");
        // The program's name is in parentheses and may contain any character. The times are in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
        let ticks: u64 = fields[11..13]
            .iter()
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum();
        Duration::from_millis(10 * ticks)
    }

    /// Waits until it has ended. Panics after [`LIMIT`].
    pub fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.exit_status() {
                return status;
            }
            assert!(begun.elapsed() < LIMIT, "{} is still running", self.role);
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

/// In the child: prints a line for the parent. That the parent has ended is not an error.
pub fn print_line(line: &str) {
    use std::io::Write as _;
    let mut output = std::io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// In the child: waits until the parent closes this process's standard input, or ends.
pub async fn stdin_closed() {
    let (sender, closed) = tokio::sync::oneshot::channel();
    // Not a thread of the runtime, which would wait for it when it ends, for example after a panic.
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        let _ = sender.send(());
    });
    let _ = closed.await;
}

/// A multi-threaded runtime, as services use.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be started")
}
