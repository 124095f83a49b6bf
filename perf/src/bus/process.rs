//! The resources that a process uses.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// The processor time this process has used so far.
pub fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("the usage of this process");
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).expect("a time that has passed"))
}

/// Resident memory of this process, in MiB.
pub fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("the status of this process");
    let kib = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmRSS:")?
                .split_whitespace()
                .next()?
                .parse::<f64>()
                .ok()
        })
        .expect("a resident size");
    kib / 1024.0
}

/// The number of TCP connections of this process to a port, as the kernel lists them.
pub fn connections(port: u16) -> usize {
    connections_of("self", port).expect("the files of this process")
}

/// The same for another process, by its id: the sockets among its files that the kernel lists as established. Fails once the
/// process has ended.
pub fn connections_of(process: &str, port: u16) -> io::Result<usize> {
    let sockets: HashSet<String> = fs::read_dir(format!("/proc/{process}/fd"))?
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    const ESTABLISHED: &str = "01";
    let remote = format!(":{port:04X}");
    let mut count = 0;
    for table in ["tcp", "tcp6"] {
        // IPv6 may be disabled.
        let lines = fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap_or_default();
        count += lines
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|fields| {
                fields.len() > 9
                    && fields[2].ends_with(&remote)
                    && fields[3] == ESTABLISHED
                    && sockets.contains(fields[9])
            })
            .count();
    }
    Ok(count)
}
