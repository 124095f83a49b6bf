//! What is done to them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use throwaway_postgres::{Server, Stop};

use super::{Failure, LISTENER};
use crate::child::Child;
use testkit::random::{Rng, RngExt as _};

/// The shortest time between two faults.
const SHORTEST: Duration = Duration::from_millis(20);

/// None takes as long as this, unless the machine or the server has a difficulty of its own.
const SLOW: Duration = Duration::from_secs(10);

pub(super) struct Faults {
    longest: Duration,
    next: Option<Instant>,
    /// How often, and how long it took at most.
    done: BTreeMap<&'static str, (u64, Duration)>,
}

impl Faults {
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest: longest.max(2 * SHORTEST),
            next: None,
            done: BTreeMap::new(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.done.values().map(|(times, _)| times).sum()
    }

    /// Waits until something is to be done and does it, or waits for so long.
    pub(super) fn wait_and_do_one(
        &mut self,
        longest: Duration,
        server: &Server,
        publishers: &mut [Child],
        rng: &mut Rng,
    ) -> Result<(), Failure> {
        let next = *self.next.get_or_insert_with(|| {
            let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            Instant::now() + rng.millis(millis(SHORTEST)..millis(self.longest))
        });
        let left = next.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(longest));
        if left > longest {
            return Ok(());
        }
        self.next = None;
        let begun = Instant::now();
        let what = disturb(server, publishers, rng)?;
        let (times, longest) = self.done.entry(what).or_default();
        *times += 1;
        *longest = begun.elapsed().max(*longest);
        if begun.elapsed() > SLOW {
            let log = server.log();
            let lines: Vec<&str> = log.lines().rev().take(40).collect();
            let lines: String = lines.iter().rev().map(|line| format!("    {line}\n")).collect();
            eprintln!("{what}: {:.1?}, and the server's log ends:\n{lines}", begun.elapsed());
        }
        Ok(())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.done.is_empty() {
            return f.write_str("none");
        }
        let all = self
            .done
            .iter()
            .map(|(what, (times, longest))| format!("{times} × {what} ({longest:.1?} at most)"));
        f.write_str(&all.collect::<Vec<_>>().join(", "))
    }
}

fn disturb(server: &Server, publishers: &mut [Child], rng: &mut Rng) -> Result<&'static str, Failure> {
    Ok(match rng.u64(..100) {
        0..30 => {
            for pid in server.backends(LISTENER)? {
                if rng.percent(50) {
                    // It may have gone by itself.
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
            // Another one is started in its place.
            publishers[rng.u64(..publishers.len() as u64) as usize].kill();
            "publisher killed"
        }
    })
}
