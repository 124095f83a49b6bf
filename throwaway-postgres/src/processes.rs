//! The processes of one server, from `/proc`.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long the kernel may take to stop a process.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// The processes whose parent is `pid`.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&child| stat(child).is_some_and(|(_, parent)| parent == pid))
        .collect()
}

/// Sends a signal; whether there was a process to send it to.
pub(crate) fn send(pid: u32, signal: Signal) -> bool {
    i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), signal).is_ok())
}

/// Stops a process, and returns when it stands still or is gone.
pub(crate) fn freeze(pid: u32) {
    let begun = Instant::now();
    while send(pid, Signal::SIGSTOP) && begun.elapsed() < STOP_LIMIT {
        if stat(pid).is_none_or(|(state, _)| matches!(state, 'T' | 'Z')) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// State and parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it is in parentheses and may contain any character.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Whether a process runs; one that has ended and is not yet waited for does not.
pub(crate) fn exists(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}
