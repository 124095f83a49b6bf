//! Runs a model in its own process, so that a crash, an abort or a hang is an outcome like any other.

use crate::mutation::{self, Mutant};
use crate::registry;
use std::io::{self, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The first argument of a process that runs one model and reports.
pub const CHILD: &str = "--child";

/// The exit code of a process with invalid arguments: no verdict on any model.
const REFUSED: i32 = 2;

/// The outcome of one model in one process.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub verdict: Verdict,
    /// How long it took.
    pub elapsed: Duration,
    /// How many executions there were; unknown unless it passed.
    pub executions: Option<u64>,
    /// The sites of the engine that it executed; empty unless it passed.
    pub reached: Vec<String>,
    /// What it printed about its failure.
    pub log: String,
}

/// How a model ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every execution passed.
    Passed,
    /// Some execution failed.
    Failed,
    /// It was stopped because it took too long, which shows nothing.
    TimedOut,
}

/// Runs the model called `name` in its own process, for at most `limit`.
pub fn run(name: &str, mutant: Option<&Mutant>, limit: Duration) -> io::Result<Outcome> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD).arg(name);
    if let Some(mutant) = mutant {
        command.arg(mutant.to_string());
    }
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let report = collect(child.stdout.take());
    let log = collect(child.stderr.take());
    let verdict = await_exit(&mut child, start + limit)?;
    let elapsed = start.elapsed();
    let report = report.join().unwrap_or_default();
    let log = log.join().unwrap_or_default();
    let executions = lines_after(&report, "executions ")
        .next()
        .and_then(|count| count.parse().ok());
    let reached = lines_after(&report, "reached ").map(str::to_owned).collect();
    Ok(Outcome {
        verdict,
        elapsed,
        executions,
        reached,
        log,
    })
}

/// The other side of [`run`]; `arguments` are those after [`CHILD`].
pub fn serve(arguments: &[String]) -> ExitCode {
    let (name, mutant) = match arguments {
        [name] => (name, None),
        [name, mutant] => (name, Some(mutant)),
        _ => return refuse("expected a model and perhaps a mutant"),
    };
    let Some(model) = registry::find(name) else {
        return refuse(&format!("there is no model {name:?}"));
    };
    match mutant.map(|text| text.parse::<Mutant>()) {
        None => {}
        Some(Ok(mutant)) => mutation::activate(mutant),
        Some(Err(error)) => return refuse(&error),
    }
    let executions = model.check();
    println!("executions {executions}");
    for site in mutation::reached() {
        println!("reached {site}");
    }
    ExitCode::SUCCESS
}

fn refuse(reason: &str) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::from(REFUSED as u8)
}

fn collect(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // If the stream breaks off, what came before is all there is to report.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn await_exit(child: &mut Child, deadline: Instant) -> io::Result<Verdict> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return match status.code() {
                Some(0) => Ok(Verdict::Passed),
                Some(REFUSED) => Err(io::Error::other("the model's process refused its arguments")),
                _ => Ok(Verdict::Failed),
            };
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(Verdict::TimedOut);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn lines_after<'a>(text: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(prefix))
}
