//! The faults: terminated connections, a frozen or restarted server, killed publishers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use throwaway_postgres::{Server, Stop};

use super::{Failure, LISTENER};
use crate::child::Child;
use testkit::random::{Rng, RngExt as _};

/// The shortest time between two faults.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// A fault that takes longer than this is reported with the server's log: the machine or the server has a problem.
const SLOW: Duration = Duration::from_secs(10);

pub(super) struct Faults {
    longest_pause: Duration,
    next: Option<Instant>,
    /// How often each fault was injected, and the longest time that it took.
    injected: BTreeMap<&'static str, (u64, Duration)>,
}

impl Faults {
    pub(super) fn new(longest_pause: Duration) -> Self {
        Self {
            longest_pause: longest_pause.max(2 * SHORTEST_PAUSE),
            next: None,
            injected: BTreeMap::new(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.injected.values().map(|(times, _)| times).sum()
    }

    /// Waits at most `limit` for the next fault to be due, and injects it if it is.
    pub(super) fn inject_when_due(
        &mut self,
        limit: Duration,
        server: &Server,
        publishers: &mut [Child],
        rng: &mut Rng,
    ) -> Result<(), Failure> {
        let next = *self.next.get_or_insert_with(|| {
            let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Instant::now() + rng.millis(millis(SHORTEST_PAUSE)..millis(self.longest_pause))
        });
        let left = next.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(limit));
        if left > limit {
            return Ok(());
        }
        self.next = None;
        let begun = Instant::now();
        let fault = inject(server, publishers, rng)?;
        let (times, longest) = self.injected.entry(fault).or_default();
        *times += 1;
        let elapsed = begun.elapsed();
        *longest = elapsed.max(*longest);
        if elapsed > SLOW {
            let log = server.log();
            let lines: Vec<&str> = log.lines().rev().take(40).collect();
            let lines: String = lines.iter().rev().map(|line| format!("    {line}\n")).collect();
            eprintln!("{fault}: took {elapsed:.1?}; the end of the server's log:\n{lines}");
        }
        Ok(())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.injected.is_empty() {
            return f.write_str("none");
        }
        let all = self
            .injected
            .iter()
            .map(|(fault, (times, longest))| format!("{times} × {fault} ({longest:.1?} at most)"));
        f.write_str(&all.collect::<Vec<_>>().join(", "))
    }
}

fn inject(server: &Server, publishers: &mut [Child], rng: &mut Rng) -> Result<&'static str, Failure> {
    Ok(match rng.u64(..100) {
        0..30 => {
            for pid in server.backends(LISTENER)? {
                if rng.percent(50) {
                    // It may have ended already.
                    let _ = server.terminate_backend(pid);
                }
            }
            "listeners terminated"
        }
        30..45 => {
            server.psql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
            )?;
            "all connections terminated"
        }
        45..60 => {
            server.freeze()?;
            std::thread::sleep(rng.millis(50..2000));
            server.thaw()?;
            "server frozen"
        }
        60..70 => {
            let how = [Stop::Immediate, Stop::Kill, Stop::Fast];
            server.restart(how[rng.u64(..3) as usize])?;
            "server restarted"
        }
        _ => {
            // The run starts a replacement.
            publishers[rng.u64(..publishers.len() as u64) as usize].kill();
            "publisher killed"
        }
    })
}
