//! The server's first process.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::Error;
use crate::binaries::Binaries;
use crate::os_user::Account;
use crate::processes;

/// How long a server may take to get ready: a crash recovery is part of it.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often a file or process is looked at.
const GLANCE: Duration = Duration::from_millis(2);
/// How many lines of the log an error shows.
const LOG_LINES: usize = 25;

/// A running server's first process, the parent of all others.
#[derive(Debug)]
pub(crate) struct Postmaster {
    child: Child,
    frozen: bool,
}

impl Postmaster {
    /// Starts the server in `home/data`; returns when it takes connections.
    pub(crate) fn start(binaries: &Binaries, account: Account, home: &Path) -> Result<Self, Error> {
        let data = home.join("data");
        let log_path = home.join("log");
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path)
            .map_err(Error::io(format!("open {log_path:?}")))?;
        let errors = log.try_clone().map_err(Error::io("open the log twice"))?;
        let child = account
            .command(binaries.program("postgres")?, home)
            .arg("-D")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(Error::io("start postgres"))?;
        let mut postmaster = Self { child, frozen: false };
        let begun = Instant::now();
        while !is_ready(&data, postmaster.pid()) {
            let ended = postmaster.child.try_wait().map_err(Error::io("wait for postgres"))?;
            let reason = match ended {
                Some(status) => format!("it ended ({status})"),
                None if begun.elapsed() > START_LIMIT => {
                    postmaster.kill();
                    format!("it is not ready after {START_LIMIT:?}")
                }
                None => {
                    std::thread::sleep(GLANCE);
                    continue;
                }
            };
            return Err(Error::Start {
                reason,
                log: log_end(home),
            });
        }
        Ok(postmaster)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops every process of the server where it stands.
    pub(crate) fn freeze(&mut self) {
        self.frozen = true;
        // The parent first, so that there are no new children.
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

    /// Asks the server to stop, thawing it if need be, and waits for its end.
    pub(crate) fn stop(&mut self, signal: Signal, limit: Duration) -> Option<ExitStatus> {
        if self.frozen {
            self.thaw();
        }
        processes::send(self.pid(), signal);
        let begun = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if begun.elapsed() > limit {
                return None;
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Kills every process of the server, as the kernel does when memory runs out.
    pub(crate) fn kill(&mut self) {
        processes::freeze(self.pid());
        let children = processes::children(self.pid());
        for &child in &children {
            processes::send(child, Signal::SIGKILL);
        }
        self.child.kill().ok();
        self.child.wait().ok();
        // They are init's children now, and hold the shared memory until they are gone.
        let begun = Instant::now();
        while children.iter().any(|&child| processes::exists(child)) && begun.elapsed() < START_LIMIT {
            std::thread::sleep(GLANCE);
        }
    }
}

/// Whether the server with this process takes connections: it says so in the eighth line of its lock file.
fn is_ready(data: &Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(data.join("postmaster.pid")) else {
        return false;
    };
    let mut lines = text.lines();
    lines.next() == Some(&pid.to_string()) && lines.nth(6).is_some_and(|status| status.trim() == "ready")
}

/// The last lines of the server's log.
pub(crate) fn log_end(home: &Path) -> String {
    let log = fs::read(home.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}
