//! The processes that are measured. Each is this program again, with one job.
//!
//! A worker prints `ready` when it is set up, waits for a line on its standard input, works, and prints its outcome as one line
//! of JSON. All use a runtime with two workers, so that candidates differ in nothing else.

pub mod append;
pub mod detect_outage;
pub mod idle;
pub mod pace;
pub mod publish;
pub mod subscribe;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::candidates::Failure;

/// The first argument of a worker; the second is its job in JSON.
const MARK: &str = "--worker";

/// The job of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    Subscribe(subscribe::Job),
    Publish(publish::Job),
    Append(append::Job),
    Idle(idle::Job),
    DetectOutage(detect_outage::Job),
    Pace(pace::Job),
}

/// Does the job and exits, if this process is a worker.
pub fn run_if_asked() -> bool {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(MARK) {
        return false;
    }
    let job = arguments.next().expect("a job");
    let job: Job = serde_json::from_str(&job).expect("a job in JSON");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async {
        match job {
            Job::Subscribe(job) => to_json(subscribe::run(job).await),
            Job::Publish(job) => to_json(publish::run(job).await),
            Job::Append(job) => to_json(append::run(job).await),
            Job::Idle(job) => to_json(idle::run(job).await),
            Job::DetectOutage(job) => to_json(detect_outage::run(job).await),
            Job::Pace(job) => to_json(pace::run(job).await),
        }
    });
    print_line(&outcome);
    // Thousands of tasks still wait for events; no shutdown is needed.
    std::process::exit(0);
}

fn to_json<T: Serialize>(outcome: Result<T, Failure>) -> String {
    let outcome = outcome.map_err(|failure| failure.to_string());
    serde_json::to_string(&outcome).expect("an outcome in JSON")
}

fn print_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .expect("the parent reads");
}

/// Reports to the parent that this worker is ready, and waits until it may start.
pub async fn ready() -> Result<(), Failure> {
    print_line("ready");
    let read = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new())).await??;
    if read == 0 {
        return Err("the parent has ended".into());
    }
    Ok(())
}

/// A worker, seen from its parent.
pub struct Worker {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Worker {
    /// Starts a worker and waits until it is ready.
    pub fn start(job: &Job) -> Result<Self, Failure> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(MARK)
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut worker = Self { process, lines };
        match worker.line()?.as_str() {
            "ready" => Ok(worker),
            outcome => Err(serde_json::from_str::<Result<serde_json::Value, String>>(outcome)
                .map_or_else(|error| error.to_string(), |outcome| format!("not ready: {outcome:?}"))
                .into()),
        }
    }

    /// Starts its work.
    pub fn go(&mut self) -> Result<(), Failure> {
        writeln!(self.process.stdin.as_mut().expect("a pipe"), "go")?;
        Ok(())
    }

    /// Waits for its outcome and its end.
    pub fn outcome<T: DeserializeOwned>(mut self) -> Result<T, Failure> {
        let line = self.line()?;
        self.process.wait()?;
        Ok(serde_json::from_str::<Result<T, String>>(&line)??)
    }

    /// Starts its work and waits for its outcome.
    pub fn run<T: DeserializeOwned>(mut self) -> Result<T, Failure> {
        self.go()?;
        self.outcome()
    }

    fn line(&mut self) -> Result<String, Failure> {
        Ok(self
            .lines
            .next()
            .ok_or("a worker ended without an outcome; see its output above")??)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails if the process has ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
