//! Criterion's estimates of this run, and the figures that benches in rounds have recorded.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;

use doorbell_perf::bench::{self, Figure, Record, cargo_pid, criterion_directory, millis};

/// The benches, each named like its group.
const GROUPS: [&str; 8] = [
    "hand_off",
    "crowd",
    "publish",
    "receive",
    "fan_out",
    "parked",
    "contended",
    "cluster",
];

/// One measurement.
pub(crate) struct Estimate {
    group: &'static str,
    /// The work.
    pub(crate) work: String,
    /// The channel and its configuration.
    pub(crate) candidate: String,
    median: f64,
    low: f64,
    high: f64,
    messages: f64,
}

impl Estimate {
    /// Nanoseconds per message or delivery.
    pub(crate) fn each(&self) -> f64 {
        self.median / self.messages
    }

    /// Half the width of the median's 95 % interval, as a fraction of the median.
    pub(crate) fn noise(&self) -> f64 {
        (self.high - self.low) / (2.0 * self.median)
    }
}

/// All measurements of this run and the remarks about them.
pub(crate) struct Estimates {
    all: Vec<Estimate>,
    /// Measurement and remark.
    pub(crate) remarks: Vec<(String, String)>,
}

impl Estimates {
    /// Reads the estimates of this run, or the latest of each bench with `any_run`.
    pub(crate) fn read(any_run: bool) -> Self {
        let mut estimates = Self {
            all: Vec::new(),
            remarks: Vec::new(),
        };
        for group in GROUPS {
            let Some(record) = bench::read(group) else { continue };
            if !any_run && !is_of_this_run(&record) {
                continue;
            }
            let since = if any_run { 0 } else { record.started };
            for work in directories(&criterion_directory().join(group)) {
                for candidate in directories(&criterion_directory().join(group).join(&work)) {
                    let path = criterion_directory()
                        .join(group)
                        .join(&work)
                        .join(&candidate)
                        .join("new");
                    estimates.all.extend(read(&path, group, &work, &candidate, since));
                }
            }
            estimates.all.extend(
                record
                    .figures
                    .iter()
                    .filter_map(|(id, figure)| in_rounds(group, id, *figure)),
            );
            estimates.remarks.extend(record.remarks);
        }
        estimates
    }

    /// The measurement `group/work/candidate`.
    pub(crate) fn get(&self, id: &str) -> Option<&Estimate> {
        self.all.iter().find(|estimate| {
            let mut parts = id.splitn(3, '/');
            parts.next() == Some(estimate.group)
                && parts.next() == Some(&estimate.work)
                && parts.next() == Some(&estimate.candidate)
        })
    }

    /// The groups that were measured.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &'static str> {
        GROUPS.into_iter().filter(|group| self.of(group).next().is_some())
    }

    /// The measurements of one group, ordered by work.
    pub(crate) fn of(&self, group: &str) -> impl Iterator<Item = &Estimate> {
        self.all.iter().filter(move |estimate| estimate.group == group)
    }
}

/// Benches of one run have the same parent process. The time limit guards against a reused process id.
fn is_of_this_run(record: &Record) -> bool {
    const LONGEST: u128 = 6 * 60 * 60 * 1000;
    record.cargo_pid == cargo_pid() && millis(SystemTime::now()).saturating_sub(record.started) < LONGEST
}

/// The names of the subdirectories, in the order of the numbers in them.
fn directories(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name != "report")
        .collect();
    names.sort_by_key(|name| (numbers(name), name.clone()));
    names
}

fn numbers(name: &str) -> Vec<u64> {
    name.split('_').filter_map(|part| part.parse().ok()).collect()
}

/// A figure that a bench has recorded itself.
fn in_rounds(group: &'static str, id: &str, figure: Figure) -> Option<Estimate> {
    let mut parts = id.splitn(3, '/').skip(1);
    Some(Estimate {
        group,
        work: parts.next()?.to_owned(),
        candidate: parts.next()?.to_owned(),
        median: figure.median,
        low: figure.low,
        high: figure.high,
        messages: 1.0,
    })
}

/// The estimate in this directory, unless it is older than `since`.
fn read(path: &Path, group: &'static str, work: &str, candidate: &str, since: u128) -> Option<Estimate> {
    let file = path.join("estimates.json");
    if millis(fs::metadata(&file).ok()?.modified().ok()?) < since {
        return None;
    }
    let estimates: Value = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
    let benchmark: Value = serde_json::from_slice(&fs::read(path.join("benchmark.json")).ok()?).ok()?;
    let median = &estimates["median"];
    Some(Estimate {
        group,
        work: work.to_owned(),
        candidate: candidate.to_owned(),
        median: median["point_estimate"].as_f64()?,
        low: median["confidence_interval"]["lower_bound"].as_f64()?,
        high: median["confidence_interval"]["upper_bound"].as_f64()?,
        messages: benchmark["throughput"]["Elements"].as_f64().unwrap_or(1.0),
    })
}
