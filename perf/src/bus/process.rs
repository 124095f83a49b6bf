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
    connections_among("self", &sockets_to(port)).expect("the files of this process")
}

/// The sockets of all processes that are connected to a port, by inode. With many sockets on the machine, the kernel takes long for
/// the list.
pub fn sockets_to(port: u16) -> HashSet<String> {
    const ESTABLISHED: &str = "01";
    let remote = format!(":{port:04X}");
    let mut sockets = HashSet::new();
    for table in ["tcp", "tcp6"] {
        // IPv6 may be disabled.
        let lines = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        for line in lines.lines() {
            let fields: Vec<_> = line.split_whitespace().collect();
            if fields.len() > 9 && fields[2].ends_with(&remote) && fields[3] == ESTABLISHED {
                sockets.insert(fields[9].to_owned());
            }
        }
    }
    sockets
}

/// How many of these sockets are among a process's files. Fails once the process has ended.
pub fn connections_among(process: &str, sockets: &HashSet<String>) -> io::Result<usize> {
    let files = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let links = files.filter_map(|entry| fs::read_link(entry.path()).ok());
    Ok(links
        .filter(|link| {
            let link = link.to_str();
            let inode = link.and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']'));
            inode.is_some_and(|inode| sockets.contains(inode))
        })
        .count())
}
