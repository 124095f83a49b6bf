//! Starts criterion benches, and records which benches ran, when they started, what they lost, and what they measured
//! without criterion.
//!
//! `target/criterion` keeps the estimates of earlier runs too. The table of ratios must not mix them with the
//! current ones, so each bench records its start time and its parent process, which all benches of one `cargo bench` share.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use criterion::Criterion;

/// Criterion's output directory, found in the order that criterion itself uses.
pub fn criterion_directory() -> PathBuf {
    if let Some(home) = env::var_os("CRITERION_HOME") {
        return home.into();
    }
    target_directory().join("criterion")
}

/// Cargo's target directory: a bench lives below it, and cargo marks it with a tag file.
pub fn target_directory() -> PathBuf {
    if let Some(target) = env::var_os("CARGO_TARGET_DIR") {
        return target.into();
    }
    env::current_exe()
        .ok()
        .and_then(|path| {
            path.ancestors()
                .find(|above| above.join("CACHEDIR.TAG").is_file())
                .map(Path::to_path_buf)
        })
        .unwrap_or_else(|| PathBuf::from("target"))
}

/// True under `cargo bench`, false under `cargo test --benches`, where everything runs once and nothing is measured.
pub fn is_measuring() -> bool {
    env::args().any(|argument| argument == "--bench") && !env::args().any(|argument| argument == "--test")
}

/// The process that started this bench, the same for all benches of one `cargo bench`.
pub fn cargo_pid() -> u32 {
    #[cfg(unix)]
    return std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    return 0;
}

fn record(bench: &str) -> PathBuf {
    criterion_directory().join("doorbell-run").join(bench)
}

/// Milliseconds since 1970, as file times have them.
pub fn millis(time: SystemTime) -> u128 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// Records the start of this bench. Without a record the table of ratios ignores its estimates.
pub fn start(bench: &str) {
    if !is_measuring() {
        return;
    }
    let path = record(bench);
    let written = fs::create_dir_all(path.parent().expect("a record lies in a directory"))
        .and_then(|()| fs::write(&path, format!("{}\t{}\n", cargo_pid(), millis(SystemTime::now()))));
    if let Err(error) = written {
        eprintln!("cannot write {}: {error}", path.display());
    }
}

/// Adds a remark about one measurement (`group/work/candidate`) to the record of its bench, such as its loss.
pub fn remark(measurement: &str, remark: &str) {
    append(measurement, &format!("{REMARK}\t{measurement}\t{remark}"));
}

/// Adds a figure that criterion did not measure to the record of its bench.
pub fn figure(measurement: &str, figure: Figure) {
    let Figure { median, low, high } = figure;
    append(measurement, &format!("{FIGURE}\t{measurement}\t{median} {low} {high}"));
}

const REMARK: &str = "remark";
const FIGURE: &str = "figure";

fn append(measurement: &str, line: &str) {
    if !is_measuring() {
        return;
    }
    let bench = measurement.split('/').next().unwrap_or(measurement);
    let path = record(bench);
    let written = fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| writeln!(file, "{line}"));
    if let Err(error) = written {
        eprintln!("cannot write {}: {error}", path.display());
    }
}

/// A median in nanoseconds, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Figure {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(str::parse);
        Some(Self {
            median: numbers.next()?.ok()?,
            low: numbers.next()?.ok()?,
            high: numbers.next()?.ok()?,
        })
    }
}

/// The record of a bench.
#[derive(Debug)]
pub struct Record {
    /// The process that started the bench.
    pub cargo_pid: u32,
    /// When it started.
    pub started: u128,
    /// Measurement and remark.
    pub remarks: Vec<(String, String)>,
    /// Measurement and figure.
    pub figures: Vec<(String, Figure)>,
}

/// The record of a bench, if there is one.
pub fn read(bench: &str) -> Option<Record> {
    let text = fs::read_to_string(record(bench)).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once('\t'));
    let (cargo_pid, started) = lines.next()?;
    let mut record = Record {
        cargo_pid: cargo_pid.parse().ok()?,
        started: started.parse().ok()?,
        remarks: Vec::new(),
        figures: Vec::new(),
    };
    for (kind, rest) in lines {
        let (measurement, text) = rest.split_once('\t')?;
        match kind {
            REMARK => record.remarks.push((measurement.to_owned(), text.to_owned())),
            FIGURE => record.figures.push((measurement.to_owned(), Figure::parse(text)?)),
            _ => return None,
        }
    }
    Some(record)
}

/// Starts the bench `name` and runs it; `name` is the target's name and the name of its only group.
///
/// Few resamples and no plots: the table of ratios only reads medians, and the suite must finish in minutes.
pub fn run_bench(name: &str, samples: usize, measure: Duration, bench: impl FnOnce(&mut Criterion)) {
    start(name);
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_millis(250))
        .measurement_time(measure)
        .sample_size(samples)
        .nresamples(2_000)
        .configure_from_args();
    bench(&mut criterion);
    criterion.final_summary();
}
