//! The report for people.

use std::fmt::Write;

use indicatif::{DecimalBytes, HumanCount};

use crate::account::Latency;
use crate::report::{Report, latency_of};
use crate::team::{Kind, Member};

/// More members of a kind than this share one row.
const ROWS_OF_A_KIND: usize = 8;

const HEAD: [&str; 10] = [
    "subscriber",
    "received",
    "skipped",
    "void",
    "lags",
    "p50",
    "p99",
    "p99.9",
    "max",
    "adds up",
];

type Row = [String; HEAD.len()];

pub(crate) fn render(report: &Report) -> String {
    let mut text = String::new();
    summary(report, &mut text);
    if !report.members.is_empty() {
        text.push('\n');
        align(&rows(report), &mut text);
    }
    text.push('\n');
    verdict(report, &mut text);
    text
}

fn summary(report: &Report, text: &mut String) {
    let published = &report.published;
    let pace = match report.events_per_second_asked {
        None => "flat out".to_owned(),
        Some(rate) => format!("paced at {}/s", HumanCount(rate)),
    };
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<10} {value}").expect("a String takes everything");
    };
    line("input", format!("{}, {}", report.source, DecimalBytes(published.bytes)));
    line(
        "published",
        format!(
            "{} events in {:.3} s: {}/s, {pace}, capacity {}",
            HumanCount(published.events),
            published.elapsed.as_secs_f64(),
            HumanCount(report.published_per_second() as u64),
            HumanCount(report.capacity as u64),
        ),
    );
    let prompt = report.prompt();
    if !prompt.is_empty() {
        line(
            "delivered",
            format!(
                "{} events ({}) to {} tasks and threads in {:.3} s: {}/s",
                HumanCount(report.deliveries()),
                DecimalBytes(report.delivered_bytes()),
                HumanCount(prompt.len() as u64),
                report.delivery_time().as_secs_f64(),
                HumanCount(report.deliveries_per_second() as u64),
            ),
        );
        if let Some(percentiles) = latency_of(&prompt).percentiles() {
            let [p50, p99, p999, max] = percentiles.map(duration);
            line("latency", format!("p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}"));
        }
    }
    let mut note = |what: &str, count: u64| {
        if count > 0 {
            line("note", format!("{what}: {}", HumanCount(count)));
        }
    };
    let cut = format!("lines cut at {} bytes", HumanCount(report.max_line as u64));
    note(&cut, published.oddities.truncated);
    note(
        "lines with invalid UTF-8, which was replaced",
        published.oddities.invalid_utf8,
    );
    note("times that the input was slower than the pace", published.late_arrivals);
    if published.events == 0 {
        line("note", "the input held no line".to_owned());
    }
    if report.interrupted {
        line("note", "stopped by a signal".to_owned());
    }
}

fn rows(report: &Report) -> Vec<Row> {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for kind in [Kind::Task, Kind::Thread, Kind::Slow] {
        let members = report.of(kind);
        if members.len() <= ROWS_OF_A_KIND {
            for member in &members {
                rows.push(row(report, format!("{kind} {}", member.number), &[member]));
            }
        } else {
            rows.push(row(report, format!("{kind}, all {}", members.len()), &members));
            let worst = members.iter().max_by_key(|member| member.outcome.skipped());
            if let Some(worst) = worst.filter(|worst| worst.outcome.skipped() > 0) {
                rows.push(row(report, format!("{kind} {} (worst)", worst.number), &[worst]));
            }
        }
    }
    rows
}

fn row(report: &Report, name: String, members: &[&Member]) -> Row {
    let sum = |count: fn(&Member) -> u64| HumanCount(members.iter().map(|member| count(member)).sum()).to_string();
    let adds_up = members.iter().all(|member| report.member_adds_up(member));
    let [p50, p99, p999, max] = latencies(&latency_of(members));
    [
        name,
        sum(|member| member.outcome.received()),
        sum(|member| member.outcome.skipped()),
        sum(|member| member.outcome.void()),
        sum(|member| member.outcome.lag_events()),
        p50,
        p99,
        p999,
        max,
        if adds_up { "yes" } else { "NO" }.to_owned(),
    ]
}

fn latencies(latency: &Latency) -> [String; 4] {
    latency
        .percentiles()
        .map_or_else(|| [(); 4].map(|()| "-".to_owned()), |all| all.map(duration))
}

fn verdict(report: &Report, text: &mut String) {
    let published = HumanCount(report.published.events);
    let failed = report
        .members
        .iter()
        .filter(|member| !report.member_adds_up(member))
        .count();
    let line = match (report.members.len(), failed) {
        (0, _) => format!("{published} events published, and nobody listened."),
        (all, 0) => format!(
            "received + skipped + void = {published} published, for {} of {all} subscribers.",
            all
        ),
        (all, failed) => format!(
            "NOT ACCOUNTED FOR: received + skipped + void = {published} published fails for {failed} of {all} subscribers, \
             or their order does."
        ),
    };
    text.push_str(&line);
    text.push('\n');
}

/// Names to the left, figures to the right, every column as wide as it needs to be.
fn align(rows: &[Row], text: &mut String) {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: [usize; HEAD.len()] = std::array::from_fn(width);
    for row in rows {
        write!(text, "{:<width$}", row[0], width = widths[0]).expect("a String takes everything");
        for (cell, width) in row.iter().zip(widths).skip(1) {
            write!(text, "  {cell:>width$}").expect("a String takes everything");
        }
        text.push('\n');
    }
}

/// Three significant digits and a unit.
fn duration(nanoseconds: u64) -> String {
    let (value, unit) = match nanoseconds as f64 {
        value if value < 1e3 => (value, "ns"),
        value if value < 1e6 => (value / 1e3, "µs"),
        value if value < 1e9 => (value / 1e6, "ms"),
        value => (value / 1e9, "s"),
    };
    let decimals = match value {
        _ if unit == "ns" => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits() {
        let cases = [
            (1, "1 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (12_345, "12.3 µs"),
            (123_456, "123 µs"),
            (9_999_999, "10.0 ms"),
            (61_000_000_000, "61.0 s"),
            (3_600_000_000_000, "3600 s"),
        ];
        for (nanoseconds, expected) in cases {
            assert_eq!(duration(nanoseconds), expected);
        }
    }

    #[test]
    fn columns_line_up_whatever_the_characters() {
        let row = |name: &str, figure: &str| std::array::from_fn(|at| if at == 0 { name } else { figure }.to_owned());
        let mut text = String::new();
        align(&[row("a", "1 µs"), row("longer", "22 µs")], &mut text);
        let widths: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [6 + 9 * 7; 2]);
    }
}
