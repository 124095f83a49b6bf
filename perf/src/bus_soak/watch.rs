//! Memory and connections of the processes while they work, and the progress line.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use crate::rss::Rss;
use crate::units::{count, print};
use doorbell_perf::bus::candidates::Failure;
use doorbell_perf::bus::process;
use doorbell_perf::chaos::{Plan, Progress};
use doorbell_perf::child::Child;

/// The resident size of a process may grow by this much after the warm-up; more is a leak.
const GROWTH: u64 = 16 << 20;
/// A process grows as it starts, so shorter runs say nothing about its memory.
const SHORTEST_WARM_UP: Duration = Duration::from_secs(10);
/// Connections that a process may have: one to listen, one to notify, three in the store's pool.
const CONNECTIONS: usize = 5;
/// How often the processes are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// How many progress lines a run prints, and the longest time between two.
const LINES: u32 = 60;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Watch {
    port: u16,
    next_sample: Duration,
    next_line: Duration,
    between_lines: Duration,
    publishers: Vec<Samples>,
    subscribers: Vec<Samples>,
}

/// The samples of one publisher or subscriber, including the processes that replaced it.
struct Samples {
    resident: Rss,
    connections: usize,
}

impl Samples {
    fn sample(&mut self, elapsed: Duration, child: &Child, sockets: &HashSet<String>) {
        let process = child.id().to_string();
        self.resident.sample(elapsed, &process);
        // A process that has ended has none.
        let connections = process::connections_among(&process, sockets).unwrap_or_default();
        self.connections = self.connections.max(connections);
    }
}

impl Watch {
    pub(super) fn new(plan: &Plan, port: u16) -> Self {
        let warm_up = (plan.duration / 5).max(SHORTEST_WARM_UP);
        let sample = || Samples {
            resident: Rss::new(warm_up, GROWTH),
            connections: 0,
        };
        Self {
            port,
            next_sample: Duration::ZERO,
            next_line: Duration::ZERO,
            between_lines: (plan.duration / LINES).clamp(SAMPLE_INTERVAL, LONGEST_PAUSE),
            publishers: std::iter::repeat_with(sample).take(plan.publishers).collect(),
            subscribers: std::iter::repeat_with(sample).take(plan.subscribers).collect(),
        }
    }

    pub(super) fn sample(&mut self, progress: &Progress<'_>) {
        if progress.elapsed < self.next_sample {
            return;
        }
        self.next_sample = progress.elapsed + SAMPLE_INTERVAL;
        let sockets = process::sockets_to(self.port);
        let publishers = self.publishers.iter_mut().zip(progress.publishers);
        for (sample, child) in publishers.chain(self.subscribers.iter_mut().zip(progress.subscribers)) {
            sample.sample(progress.elapsed, child, &sockets);
        }
        if progress.elapsed >= self.next_line {
            self.next_line = progress.elapsed + self.between_lines;
            print(&format!(
                "{:>6} s  {:>12} committed  {:>5} faults  {}\n",
                progress.elapsed.as_secs(),
                count(progress.committed),
                count(progress.faults),
                self.largest(),
            ));
        }
    }

    fn largest(&self) -> String {
        let all = || self.publishers.iter().chain(&self.subscribers);
        let connections = all().map(|sample| sample.connections).max().unwrap_or_default();
        let resident = all().filter_map(|sample| sample.resident.max()).max();
        let mebibytes = resident.unwrap_or_default() as f64 / f64::from(1 << 20);
        format!("the largest process: {mebibytes:.1} MiB, {connections} connections")
    }

    fn named(&self) -> Vec<(String, &Samples)> {
        let mut named = Vec::new();
        for (role, samples) in [("publisher", &self.publishers), ("subscriber", &self.subscribers)] {
            for (n, sample) in samples.iter().enumerate() {
                named.push((format!("{role} {}", n + 1), sample));
            }
        }
        named
    }

    pub(super) fn verdict(&self) -> Result<(), Failure> {
        let mut problems = Vec::new();
        for (name, sample) in self.named() {
            problems.extend(sample.resident.problem().map(|problem| format!("{name}: {problem}")));
            if sample.connections > CONNECTIONS {
                problems.push(format!(
                    "{name}: {} connections, more than {CONNECTIONS}",
                    sample.connections
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
        for (name, sample) in self.named() {
            writeln!(
                formatter,
                "{name}: {}, {} connections at most",
                sample.resident, sample.connections
            )?;
        }
        Ok(())
    }
}
