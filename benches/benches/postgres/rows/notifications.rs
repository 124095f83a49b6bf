//! What notifications cost callers that append: the same appends with and without notifications, alternating.

use throwaway_postgres::Server;

use super::appends;
use crate::options::Options;
use crate::report::{Report, median};
use doorbell_perf::bus::candidates::{Candidate, Failure};
use doorbell_perf::table::{Align, Table};

/// Each has its own stream.
const WRITERS: [usize; 3] = [1, 8, 32];

/// `target` is the least ratio of the rate with notifications to the rate without.
pub(crate) fn measure(
    server: &Server,
    flush: &str,
    target: f64,
    options: &Options,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut table = Table::new(&[
        ("writers", Align::Right),
        ("notification", Align::Left),
        ("events/s", Align::Right),
        ("to the rate without", Align::Right),
    ]);
    for writers in WRITERS {
        let mut rates = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..options.rounds() {
            let mut turns = [
                Candidate::NotifyOff,
                Candidate::Doorbell,
                Candidate::NotifyInTransaction,
            ];
            // A later turn finds a different server: fuller tables, or a write-ahead log that was just recycled.
            if round % 2 == 1 {
                turns.reverse();
            }
            for candidate in turns {
                eprintln!(
                    "notifications: {flush} flush, {writers} writers, {}, round {}",
                    candidate.name(),
                    round + 1
                );
                let outcome = appends::one(server, options, candidate, writers, writers, 1)?;
                let place = [
                    Candidate::NotifyOff,
                    Candidate::Doorbell,
                    Candidate::NotifyInTransaction,
                ]
                .iter()
                .position(|&it| it == candidate);
                rates[place.expect("one of the three")].push(outcome.rate);
            }
        }
        let [without, after, in_transaction] = &rates;
        let part = |rates: &[f64]| median(rates.iter().zip(without).map(|(with, without)| with / without));
        for (name, rates) in [
            ("none", without),
            ("after the commit", after),
            ("in the transaction", in_transaction),
        ] {
            table.row(&[
                writers.to_string(),
                name.to_owned(),
                format!("{:.0}", median(rates.iter().copied())),
                format!("{:.3}", part(rates)),
            ]);
        }
        report.at_least(
            format!("appends with notifications to appends without, {writers} writers, {flush} flush"),
            target,
            part(after),
        );
    }
    report.section(format!("What notifications cost, {flush} flush"), &table);
    Ok(())
}
