//! The processes that are measured: this program again, each with one job.
//!
//! A worker prints `ready` when it stands, waits for a line on its standard input, works, and prints its outcome as one line of
//! JSON. All of them use the same runtime with two workers, so that candidates differ in nothing else.

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

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    Subscribe(subscribe::Job),
    Publish(publish::Job),
    Append(append::Job),
    Idle(idle::Job),
    DetectOutage(detect_outage::Job),
    Pace(pace::Job),
}

/// Does the job, if this process is a worker.
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
            Job::Subscribe(job) => said(subscribe::run(job).await),
            Job::Publish(job) => said(publish::run(job).await),
            Job::Append(job) => said(append::run(job).await),
            Job::Idle(job) => said(idle::run(job).await),
            Job::DetectOutage(job) => said(detect_outage::run(job).await),
            Job::Pace(job) => said(pace::run(job).await),
        }
    });
    say(&outcome);
    // Thousands of tasks are still waiting for events; there is nothing left to end in order.
    std::process::exit(0);
}

fn said<T: Serialize>(outcome: Result<T, Failure>) -> String {
    let outcome = outcome.map_err(|failure| failure.to_string());
    serde_json::to_string(&outcome).expect("an outcome in JSON")
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}")
        .and_then(|()| stdout.flush())
        .expect("a parent that listens");
}

/// Tells the parent that this worker is ready, and waits for its word.
pub async fn ready() -> Result<(), Failure> {
    say("ready");
    let read = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new())).await??;
    if read == 0 {
        return Err("the parent is gone".into());
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

    /// Lets it work.
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

    /// Lets it work and waits for its outcome.
    pub fn run<T: DeserializeOwned>(mut self) -> Result<T, Failure> {
        self.go()?;
        self.outcome()
    }

    fn line(&mut self) -> Result<String, Failure> {
        Ok(self
            .lines
            .next()
            .ok_or("a worker ended without a word; its reason stands above")??)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has ended is not there to be killed.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
