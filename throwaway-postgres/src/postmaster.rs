//! The server's first process.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::Error;
use crate::binaries::Binaries;
use crate::os_user::OsUser;
use crate::processes;

/// The time that a server may take to start, including crash recovery.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The polling interval for files and processes.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The number of lines of the log that an error includes.
const LOG_LINES: usize = 25;

/// The first process of a running server, the parent of all others.
#[derive(Debug)]
pub(crate) struct Postmaster {
    child: Child,
    frozen: bool,
}

impl Postmaster {
    /// Starts the server in `dir/data`, and returns when it accepts connections.
    pub(crate) fn start(binaries: &Binaries, os_user: OsUser, dir: &Path) -> Result<Self, Error> {
        let data = dir.join("data");
        let log_path = dir.join("log");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path)
            .map_err(Error::io(format!("open {log_path:?}")))?;
        let errors = log.try_clone().map_err(Error::io("open the log twice"))?;
        let child = os_user
            .command(binaries.program("postgres")?, dir)
            .arg("-D")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(Error::io("start postgres"))?;
        let mut postmaster = Self { child, frozen: false };
        let started = Instant::now();
        while !is_ready(&data, postmaster.pid()) {
            let ended = postmaster.child.try_wait().map_err(Error::io("wait for postgres"))?;
            let reason = match ended {
                Some(status) => format!("it exited ({status})"),
                None if started.elapsed() > START_LIMIT => {
                    postmaster.kill();
                    format!("it is not ready after {START_LIMIT:?}")
                }
                None => {
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                }
            };
            return Err(Error::Start {
                reason,
                log: log_end(dir),
            });
        }
        Ok(postmaster)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Suspends every process of the server.
    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
        // The parent first, so that it creates no new children.
        processes::freeze(self.pid());
        for child in processes::children(self.pid()) {
            processes::freeze(child);
        }
    }

    pub(crate) fn thaw(&mut self) {
        self.frozen = false;
        for child in processes::children(self.pid()) {
            processes::send(child, Signal::SIGCONT);
        }
        processes::send(self.pid(), Signal::SIGCONT);
    }

    /// Signals the server to stop, resuming it first if it is frozen, and waits for its exit.
    pub(crate) fn stop(&mut self, signal: Signal, limit: Duration) -> Option<ExitStatus> {
        if self.frozen {
            self.thaw();
        }
        processes::send(self.pid(), signal);
        let started = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if started.elapsed() > limit {
                return None;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills every process of the server, like the kernel's out-of-memory killer.
    pub(crate) fn kill(&mut self) {
        processes::freeze(self.pid());
        let children = processes::children(self.pid());
        for &child in &children {
            processes::send(child, Signal::SIGKILL);
        }
        self.child.kill().ok();
        self.child.wait().ok();
        // They are now children of init, and hold the shared memory until they exit.
        let started = Instant::now();
        while children.iter().any(|&child| processes::exists(child)) && started.elapsed() < START_LIMIT {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns `true` if the server with this process id accepts connections, according to the eighth line of its lock file.
fn is_ready(data: &Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(data.join("postmaster.pid")) else {
        return false;
    };
    let mut lines = text.lines();
    lines.next() == Some(&pid.to_string()) && lines.nth(6).is_some_and(|status| status.trim() == "ready")
}

/// Returns the last lines of the server's log.
pub(crate) fn log_end(dir: &Path) -> String {
    let log = fs::read(dir.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
