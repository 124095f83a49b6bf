//! The `fanout` program as a process, with a time limit instead of a hang.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_fanout");

/// No run takes anything like this long, unless it hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A program and its arguments.
pub(crate) struct Command(std::process::Command);

/// `fanout` with these arguments.
pub(crate) fn fanout<const N: usize>(arguments: [&str; N]) -> Command {
    Command::new(PROGRAM, arguments.map(OsString::from))
}

impl Command {
    pub(crate) fn new<const N: usize>(program: impl Into<OsString>, arguments: [OsString; N]) -> Self {
        let mut command = std::process::Command::new(program.into());
        command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
        Self(command)
    }

    pub(crate) fn start(mut self) -> Process {
        let all = self
            .0
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Process(all.spawn().expect("the program starts"))
    }

    /// Runs the program with this standard input.
    pub(crate) fn run_with(self, input: &[u8]) -> Run {
        let mut process = self.start();
        let mut stdin = process.stdin();
        thread::scope(|scope| {
            // A program that refuses its arguments does not read.
            scope.spawn(move || stdin.write_all(input));
            process.finish()
        })
    }
}

/// A running program.
pub(crate) struct Process(Child);

impl Process {
    /// Its standard input, to write to; closed when dropped.
    pub(crate) fn stdin(&mut self) -> ChildStdin {
        self.0.stdin.take().expect("asked for once")
    }

    /// Its standard output, to read from.
    pub(crate) fn stdout(&mut self) -> ChildStdout {
        self.0.stdout.take().expect("asked for once")
    }

    /// What Ctrl-C does.
    #[cfg(unix)]
    pub(crate) fn interrupt(&self) {
        let process = self.0.id().to_string();
        let kill = std::process::Command::new("kill").args(["-INT", &process]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// Waits for the end and gathers what was written.
    pub(crate) fn finish(mut self) -> Run {
        let stdout = gather(self.0.stdout.take());
        let stderr = gather(self.0.stderr.take());
        let limit = Instant::now() + LIMIT;
        let status = loop {
            match self.0.try_wait().expect("it can be waited for") {
                Some(status) => break status,
                None if Instant::now() < limit => thread::sleep(Duration::from_millis(2)),
                None => {
                    self.0.kill().expect("it can be killed");
                    panic!("no end after {LIMIT:?}; so far: {:?}", stderr.join());
                }
            }
        };
        let text = |gathered: thread::JoinHandle<String>| gathered.join().expect("it is UTF-8");
        let run = Run {
            status: status.code(),
            stdout: text(stdout),
            stderr: text(stderr),
        };
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        run
    }
}

fn gather(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_string(&mut text).expect("it is UTF-8");
        }
        text
    })
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Run {
    /// `None` when a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The program did nothing, and said why on standard error.
    pub(crate) fn is_refused(&self, status: i32, why: &str) {
        assert_eq!(
            (self.status, self.stdout.as_str()),
            (Some(status), ""),
            "{}",
            self.stderr
        );
        assert!(self.stderr.contains(why), "{why:?} is missing in {}", self.stderr);
    }
}
