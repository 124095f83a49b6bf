//! The report as text.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{DecimalBytes, HumanCount};

use crate::report::{Report, sum};
use crate::subscribers::Outcome;

/// More subscribers of a kind than this share one row.
const ROWS_OF_A_KIND: usize = 8;

const COLUMNS: usize = 9;
const HEADER: &str = "subscriber,received,skipped,lags,p50,p99,p99.9,max,adds up";

pub(crate) fn render(report: &Report, max_line: usize) -> String {
    let table = if report.subscribers.is_empty() {
        String::new()
    } else {
        format!("\n{}\n", table(&report.subscribers))
    };
    format!("{}{table}\n{}\n", summary(report, max_line), verdict(report))
}

fn summary(report: &Report, max_line: usize) -> String {
    let (published, delivered) = (&report.published, &report.delivered);
    let mut text = format!("input      {}, {}\n", report.input, DecimalBytes(published.bytes_read));
    text += &format!(
        "published  {} events in {:.3} s: {}/s, {}, capacity {}\n",
        HumanCount(published.events),
        published.seconds,
        HumanCount(published.events_per_second as u64),
        report
            .rate
            .map_or("flat out".to_owned(), |rate| format!("paced at {}/s", HumanCount(rate))),
        HumanCount(report.capacity as u64),
    );
    if delivered.subscribers > 0 {
        text += &format!(
            "delivered  {} events ({}) to {} tasks and threads in {:.3} s: {}/s\n",
            HumanCount(delivered.events),
            DecimalBytes(delivered.bytes),
            HumanCount(delivered.subscribers),
            delivered.seconds,
            HumanCount(delivered.events_per_second as u64),
        );
    }
    if let Some(percentiles) = delivered.latency.percentiles() {
        let all = percentiles.map(|(name, nanoseconds)| format!("{name} {}", duration(nanoseconds)));
        text += &format!("latency    {}\n", all.join(", "));
    }
    let mut note = |what: &str, count: u64| {
        if count > 0 {
            text += &format!("note       {what}: {}\n", HumanCount(count));
        }
    };
    let truncated = format!("lines cut at {} bytes", HumanCount(max_line as u64));
    note(&truncated, published.lines_truncated);
    note(
        "lines with invalid UTF-8, which was replaced",
        published.lines_with_invalid_utf8,
    );
    if published.events == 0 && report.error.is_none() && !report.interrupted {
        text += "note       the input had no lines\n";
    }
    if report.interrupted {
        text += "note       stopped by a signal\n";
    }
    text
}

/// One row for each subscriber or, when there are many of a kind, one for all of them.
fn table(subscribers: &[Outcome]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(HEADER.split(','));
    for group in subscribers.chunk_by(|a, b| a.kind == b.kind) {
        let kind = group[0].kind;
        if group.len() <= ROWS_OF_A_KIND {
            table.add_rows(group.iter().map(|one| row(format!("{kind} {}", one.number), one)));
        } else if let Some(all) = sum(group.iter()) {
            table.add_row(row(format!("{kind}, all {}", group.len()), &all));
        }
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        let (left, alignment) = if index == 0 {
            (0, CellAlignment::Left)
        } else {
            (2, CellAlignment::Right)
        };
        column.set_padding((left, 0)).set_cell_alignment(alignment);
    }
    table
}

fn row(name: String, counted: &Outcome) -> [String; COLUMNS] {
    let counts = [counted.received, counted.skipped, counted.lag_events];
    let [received, skipped, lags] = counts.map(|count| HumanCount(count).to_string());
    let [p50, p99, p999, max] = match counted.latency.percentiles() {
        Some(all) => all.map(|(_, nanoseconds)| duration(nanoseconds)),
        None => [(); 4].map(|()| "-".to_owned()),
    };
    let adds_up = if counted.adds_up { "yes" } else { "NO" }.to_owned();
    [name, received, skipped, lags, p50, p99, p999, max, adds_up]
}

fn verdict(report: &Report) -> String {
    let published = HumanCount(report.published.events);
    let all = report.subscribers.len();
    match report
        .subscribers
        .iter()
        .filter(|subscriber| !subscriber.adds_up)
        .count()
    {
        _ if all == 0 => format!("{published} events published, to no subscriber."),
        0 => format!("received + skipped = {published} published, for {all} of {all} subscribers."),
        failed => format!(
            "NOT ACCOUNTED FOR: received + skipped = {published} published fails for {failed} of {all} subscribers, \
             or their order does."
        ),
    }
}

fn duration(nanoseconds: u64) -> String {
    format!("{:.1?}", Duration::from_nanos(nanoseconds))
}
