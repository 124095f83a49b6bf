//! The faults: terminated connections, a frozen, restarted or replaced server, killed publishers, a hostile role.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use throwaway_postgres::Stop;
use tokio::runtime::Handle;

use super::hostile::{Attack, CREATE_ROLE, Hostile};
use super::refusals::{LONGEST_REFUSAL, Refusals};
use super::servers::Servers;
use super::{Failure, LISTENER, RESPONSE_TIMEOUT};
use crate::bus::timed_event::now;
use crate::child::Child;
use testkit::random::{Rng, RngExt as _};

/// The shortest time between two faults.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// The shortest time between a switchover and the next fault: until then the switchover explains every refused append, also one that
/// waited for a response and got none.
const AFTER_SWITCHOVER: Duration = LONGEST_REFUSAL.saturating_add(RESPONSE_TIMEOUT);

/// A fault that takes longer than this is reported with the server's log: the machine or the server has a problem.
const SLOW: Duration = Duration::from_secs(15);

/// How many of the latest faults the report of a failure lists.
const LISTED: usize = 100;

#[derive(Clone, Copy, Debug)]
enum Fault {
    TerminateListeners,
    TerminateAll,
    Freeze,
    Restart,
    KillPublisher,
    SwitchOver,
    Attack(Attack),
}

/// How often each fault comes in one round. Each round is in another order, so that even a short run has faults of every kind.
const ROUND: [(Fault, usize); 9] = [
    (Fault::TerminateListeners, 6),
    (Fault::TerminateAll, 3),
    (Fault::Freeze, 3),
    (Fault::Restart, 2),
    (Fault::KillPublisher, 6),
    (Fault::SwitchOver, 1),
    (Fault::Attack(Attack::Forge), 2),
    (Fault::Attack(Attack::Flood), 2),
    (Fault::Attack(Attack::Lock), 2),
];

pub(super) struct Faults<'a> {
    servers: &'a mut Servers,
    hostile: Hostile,
    refusals: Refusals,
    longest_pause: Duration,
    /// The rest of this round.
    round: Vec<Fault>,
    begun: Instant,
    next: Option<Instant>,
    /// How often each fault was injected, and the longest time that it took.
    injected: BTreeMap<&'static str, (u64, Duration)>,
    history: Vec<String>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(servers: &'a mut Servers, longest_pause: Duration, runtime: Handle) -> Result<Self, Failure> {
        servers.primary().psql(CREATE_ROLE)?;
        Ok(Self {
            hostile: Hostile::new(&servers.url(), runtime)?,
            servers,
            refusals: Refusals::default(),
            longest_pause: longest_pause.max(2 * SHORTEST_PAUSE),
            round: Vec::new(),
            begun: Instant::now(),
            next: None,
            injected: BTreeMap::new(),
            history: Vec::new(),
        })
    }

    pub(super) fn count(&self) -> u64 {
        self.injected.values().map(|(times, _)| times).sum()
    }

    pub(super) fn servers(&self) -> &Servers {
        self.servers
    }

    pub(super) fn refusals(&mut self) -> &mut Refusals {
        &mut self.refusals
    }

    /// No fault comes any more.
    pub(super) fn stop(&mut self) {
        self.hostile.stop();
    }

    /// Waits at most `limit` for the next fault to be due, and injects it if it is.
    pub(super) fn inject_when_due(
        &mut self,
        limit: Duration,
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
        self.refusals.fault_at(now());
        let begun = Instant::now();
        let fault = self.inject(publishers, rng)?;
        let elapsed = begun.elapsed();
        let (times, longest) = self.injected.entry(fault).or_default();
        *times += 1;
        *longest = elapsed.max(*longest);
        let at = begun.duration_since(self.begun);
        self.history.push(format!("{at:.3?}: {fault} for {elapsed:.3?}"));
        if self.history.len() > LISTED {
            self.history.remove(0);
        }
        if elapsed > SLOW {
            let log = self.servers.primary().log();
            let lines: Vec<&str> = log.lines().rev().take(40).collect();
            let lines: String = lines.iter().rev().map(|line| format!("    {line}\n")).collect();
            eprintln!("{fault}: took {elapsed:.1?}; the end of the primary's log:\n{lines}");
        }
        Ok(())
    }

    /// The latest faults, for the report of a failure.
    pub(super) fn history(&self) -> String {
        format!(
            "now: {:.3?}; the latest faults:\n{}",
            self.begun.elapsed(),
            self.history.join("\n")
        )
    }

    fn inject(&mut self, publishers: &mut [Child], rng: &mut Rng) -> Result<&'static str, Failure> {
        if self.round.is_empty() {
            let round = ROUND
                .iter()
                .flat_map(|&(fault, times)| std::iter::repeat_n(fault, times));
            self.round = round.collect();
            rng.shuffle(&mut self.round);
        }
        let fault = self.round.pop().expect("a round has faults");
        let server = self.servers.primary();
        Ok(match fault {
            Fault::TerminateListeners => {
                for pid in server.backends(LISTENER)? {
                    if rng.percent(50) {
                        // It may have ended already.
                        let _ = server.terminate_backend(pid);
                    }
                }
                "listeners terminated"
            }
            Fault::TerminateAll => {
                server.psql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
                )?;
                "all connections terminated"
            }
            Fault::Freeze => {
                server.freeze()?;
                std::thread::sleep(rng.millis(50..2000));
                server.thaw()?;
                "server frozen"
            }
            Fault::Restart => {
                let how = [Stop::Immediate, Stop::Kill, Stop::Fast];
                server.restart(how[rng.u64(..3) as usize])?;
                "server restarted"
            }
            Fault::KillPublisher => {
                // The run starts a replacement.
                publishers[rng.u64(..publishers.len() as u64) as usize].kill();
                "publisher killed"
            }
            Fault::SwitchOver => {
                // Its sessions could reach the new primary, and refuse appends there.
                self.hostile.stop();
                self.refusals.writable_at(self.servers.switch_over(rng)?);
                self.next = Some(Instant::now() + AFTER_SWITCHOVER);
                "switchover"
            }
            Fault::Attack(attack) => {
                self.hostile.begin(attack, rng);
                match attack {
                    Attack::Forge => "notifications forged",
                    Attack::Flood => "channel flooded",
                    Attack::Lock => "streams locked",
                }
            }
        })
    }
}

impl fmt::Display for Faults<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (fault, (times, longest))) in self.injected.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{times} × {fault} ({longest:.1?} at most)")?;
        }
        write!(f, "\n{}\n{}", self.hostile, self.refusals)
    }
}
