//! The end of `cargo bench`: the medians of this run as ratios, doorbell to peer, with the targets beside them; also
//! written to `doorbell-ratios.md` in the target directory.
//!
//! `cargo bench --bench table_of_ratios -- --any-run` takes estimates of earlier runs too.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

mod estimates;
mod targets;

use doorbell_perf::bench;
use doorbell_perf::rounds::time;
use doorbell_perf::table::{Align, Table};
use estimates::{Estimate, Estimates};
use targets::TARGETS;

fn main() {
    if !bench::is_measuring() {
        return;
    }
    let any_run = std::env::args().any(|argument| argument == "--any-run");
    let estimates = Estimates::read(any_run);
    let text = report(&estimates, any_run);
    println!("\n{text}");
    let path = bench::target_directory().join("doorbell-ratios.md");
    match fs::write(&path, &text) {
        Ok(()) => println!("This table is also in {}.", path.display()),
        Err(error) => eprintln!("cannot write {}: {error}", path.display()),
    }
}

fn report(estimates: &Estimates, any_run: bool) -> String {
    let mut text = String::from("# Ratios of doorbell to its peers\n\n");
    text.push_str(if any_run {
        "Medians of the latest run of each bench, time per message; below 1 doorbell is quicker."
    } else {
        "Medians of this run, time per message; below 1 doorbell is quicker."
    });
    text.push_str(" docs/benchmarks.md says what each row means and how to read the noise.\n\n## Targets\n\n");
    targets(estimates, &mut text);
    text.push_str("\n## Everything measured\n\nNanoseconds per message, or per delivery where there are several subscribers, and the ratio of doorbell's time to each peer's.\n\n");
    everything(estimates, &mut text);
    if !estimates.remarks.is_empty() {
        text.push_str("\n## Losses and other remarks\n\n");
        losses(estimates, &mut text);
    }
    text
}

fn targets(estimates: &Estimates, text: &mut String) {
    let mut table = Table::new(&[
        ("workload", Align::Left),
        ("doorbell", Align::Right),
        ("compared with", Align::Left),
        ("its time", Align::Right),
        ("ratio", Align::Right),
        ("noise", Align::Right),
        ("target", Align::Left),
        ("met", Align::Left),
    ]);
    let (mut met, mut judged, mut missing) = (0, 0, 0);
    for target in TARGETS {
        let (doorbell, other) = (estimates.get(target.doorbell), estimates.get(target.other));
        let mut row = vec![
            target.work.to_owned(),
            doorbell.map_or_else(nothing, |doorbell| time(doorbell.each())),
            target.peer.to_owned(),
            other.map_or_else(nothing, |other| time(other.each())),
        ];
        if let (Some(doorbell), Some(other)) = (doorbell, other) {
            let ratio = doorbell.each() / other.each();
            let noise = doorbell.noise().hypot(other.noise());
            let verdict = target.is_met(ratio, doorbell.each(), noise);
            met += usize::from(verdict == Some(true));
            judged += usize::from(verdict.is_some());
            row.push(target.show(ratio));
            row.push(format!("±{:.0} %", 100.0 * noise));
            row.push(target.bound());
            row.push(verdict.map_or("", |met| if met { "yes" } else { "NO" }).to_owned());
        } else {
            missing += 1;
            row.extend([nothing(), nothing(), target.bound(), "not measured".to_owned()]);
        }
        table.row(&row);
    }
    text.push_str(&table.render());
    let _ = writeln!(text, "\n{met} of {judged} targets met.");
    if missing > 0 {
        let _ = writeln!(
            text,
            "{missing} rows lack a measurement of this run: it was filtered, or stopped early."
        );
    }
}

fn nothing() -> String {
    "–".to_owned()
}

/// One row for each form of doorbell and each work, one column for each peer. Peers that take part in few works have a
/// table of their own, so that no table is too wide for a terminal.
fn everything(estimates: &Estimates, text: &mut String) {
    const WIDEST: usize = 6;
    for group in estimates.groups() {
        let all: Vec<&Estimate> = estimates.of(group).collect();
        let _ = writeln!(text, "### {group}\n");
        for peers in peers(&all).chunks(WIDEST) {
            let mut columns = vec![
                ("workload", Align::Left),
                ("doorbell as", Align::Left),
                ("ns", Align::Right),
            ];
            columns.extend(peers.iter().map(|&peer| (peer, Align::Right)));
            let mut table = Table::new(&columns);
            for doorbell in all.iter().filter(|estimate| is_doorbell(&estimate.candidate)) {
                let ratio = |&peer: &&str| {
                    let other = all
                        .iter()
                        .find(|other| other.work == doorbell.work && other.candidate == peer)?;
                    Some(format!("{:.2}", doorbell.each() / other.each()))
                };
                let ratios: Vec<_> = peers.iter().map(ratio).collect();
                if ratios.iter().any(Option::is_some) {
                    let mut row = vec![
                        doorbell.work.clone(),
                        doorbell.candidate.clone(),
                        format!("{:.1}", doorbell.each()),
                    ];
                    row.extend(ratios.into_iter().map(Option::unwrap_or_default));
                    table.row(&row);
                }
            }
            let _ = writeln!(text, "{}", table.render());
        }
    }
}

fn is_doorbell(candidate: &str) -> bool {
    candidate == "doorbell" || candidate.starts_with("doorbell_")
}

/// The peers of a group, those that take part in most works first.
fn peers<'a>(all: &[&'a Estimate]) -> Vec<&'a str> {
    let mut works: BTreeMap<&str, usize> = BTreeMap::new();
    for estimate in all.iter().filter(|estimate| !is_doorbell(&estimate.candidate)) {
        *works.entry(&estimate.candidate).or_default() += 1;
    }
    let mut peers: Vec<&str> = works.keys().copied().collect();
    peers.sort_by_key(|peer| Reverse(works[peer]));
    peers
}

fn losses(estimates: &Estimates, text: &mut String) {
    let mut table = Table::new(&[
        ("measurement", Align::Left),
        ("ns", Align::Right),
        ("remark", Align::Left),
    ]);
    for (measurement, remark) in &estimates.remarks {
        let each = estimates
            .get(measurement)
            .map_or_else(String::new, |estimate| format!("{:.1}", estimate.each()));
        table.row(&[measurement.clone(), each, remark.clone()]);
    }
    text.push_str(&table.render());
}
