//! What the processes occupy while they are at work, and how it is told.

use std::fmt;
use std::time::Duration;

use crate::rss::Resident;
use crate::units::{count, say};
use doorbell_perf::bus::candidates::Failure;
use doorbell_perf::bus::process;
use doorbell_perf::chaos::{Glance, Plan};
use doorbell_perf::child::Child;

/// The resident size of a process may grow by this much after the warm-up; more is a leak.
const GROWTH: u64 = 16 << 20;
/// A process grows as it starts: shorter runs than this say nothing about its memory.
const SHORTEST_WARM_UP: Duration = Duration::from_secs(10);
/// How many connections a process may have: one that listens, one for bells, three of the store's pool.
const CONNECTIONS: usize = 5;
/// How often the processes are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How many lines a run prints, and how far they are apart at most.
const LINES: u32 = 60;
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

pub(super) struct Watch {
    port: u16,
    next_look: Duration,
    next_line: Duration,
    between_lines: Duration,
    publishers: Vec<Seat>,
    subscribers: Vec<Seat>,
}

/// A process, or several that follow one another in the same role.
struct Seat {
    resident: Resident,
    connections: usize,
}

impl Seat {
    fn look(&mut self, elapsed: Duration, child: &Child, port: u16) {
        let process = child.id().to_string();
        self.resident.look(elapsed, &process);
        // One that has ended has none.
        let connections = process::connections_of(&process, port).unwrap_or_default();
        self.connections = self.connections.max(connections);
    }
}

impl Watch {
    pub(super) fn new(plan: &Plan, port: u16) -> Self {
        let warm_up = (plan.duration / 5).max(SHORTEST_WARM_UP);
        let seat = || Seat {
            resident: Resident::new(warm_up, GROWTH),
            connections: 0,
        };
        Self {
            port,
            next_look: Duration::ZERO,
            next_line: Duration::ZERO,
            between_lines: (plan.duration / LINES).clamp(LOOK, LONGEST_SILENCE),
            publishers: std::iter::repeat_with(seat).take(plan.publishers).collect(),
            subscribers: std::iter::repeat_with(seat).take(plan.subscribers).collect(),
        }
    }

    pub(super) fn look(&mut self, glance: &Glance<'_>) {
        if glance.elapsed < self.next_look {
            return;
        }
        self.next_look = glance.elapsed + LOOK;
        let publishers = self.publishers.iter_mut().zip(glance.publishers);
        for (seat, child) in publishers.chain(self.subscribers.iter_mut().zip(glance.subscribers)) {
            seat.look(glance.elapsed, child, self.port);
        }
        if glance.elapsed >= self.next_line {
            self.next_line = glance.elapsed + self.between_lines;
            say(&format!(
                "{:>6} s  {:>12} committed  {:>5} faults  {}\n",
                glance.elapsed.as_secs(),
                count(glance.committed),
                count(glance.faults),
                self.largest(),
            ));
        }
    }

    fn largest(&self) -> String {
        let all = || self.publishers.iter().chain(&self.subscribers);
        let connections = all().map(|seat| seat.connections).max().unwrap_or_default();
        let resident = all().filter_map(|seat| seat.resident.most()).max();
        let mebibytes = resident.unwrap_or_default() as f64 / f64::from(1 << 20);
        format!("the largest process: {mebibytes:.1} MiB, {connections} connections")
    }

    fn named(&self) -> Vec<(String, &Seat)> {
        let mut named = Vec::new();
        for (role, seats) in [("publisher", &self.publishers), ("subscriber", &self.subscribers)] {
            for (n, seat) in seats.iter().enumerate() {
                named.push((format!("{role} {}", n + 1), seat));
            }
        }
        named
    }

    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let mut problems = Vec::new();
        for (name, seat) in self.named() {
            problems.extend(seat.resident.problem().map(|problem| format!("{name}: {problem}")));
            if seat.connections > CONNECTIONS {
                problems.push(format!(
                    "{name}: {} connections, more than {CONNECTIONS}",
                    seat.connections
                ));
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n").into())
        }
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, seat) in self.named() {
            writeln!(
                formatter,
                "{name}: {}, {} connections at most",
                seat.resident, seat.connections
            )?;
        }
        Ok(())
    }
}
