//! Finds and signals processes, with `/proc`.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The time that the kernel may take to suspend a process.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Returns the processes whose parent is `pid`.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&child| stat(child).is_some_and(|(_, parent)| parent == pid))
        .collect()
}

/// Sends a signal. Returns whether the process exists.
pub(crate) fn send(pid: u32, signal: Signal) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), signal).is_ok())
}

/// Suspends a process, and returns when it is suspended or has exited.
pub(crate) fn freeze(pid: u32) {
    let started = Instant::now();
    while send(pid, Signal::SIGSTOP) && started.elapsed() < STOP_LIMIT {
        if stat(pid).is_none_or(|(state, _)| matches!(state, 'T' | 'Z')) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the state and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The preceding name is in parentheses and can contain any character.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Returns `true` if a process runs. A zombie does not.
pub(crate) fn exists(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}
