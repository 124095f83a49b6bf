//! Of all kinds of crowds, the one that costs most beside a crowd of one: these rows have the targets.

use doorbell_perf::bench;
use doorbell_perf::bench::Figure;
use doorbell_perf::rounds::Outcome;

/// The worst ratios so far.
#[derive(Default)]
pub(crate) struct Worst(Vec<Row>);

struct Row {
    /// Such as `publish_10000`.
    work: String,
    candidate: &'static str,
    kind: String,
    figure: Figure,
    beside_one: Figure,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.figure.median / self.beside_one.median
    }
}

impl Worst {
    /// Adds the figures of a kind: publish, publish once settled, receive, longest publish.
    pub(crate) fn add(&mut self, sizes: &[usize], outcomes: Vec<Outcome<4>>) {
        for outcome in &outcomes {
            let Some((kind, size)) = outcome.work.rsplit_once('_') else {
                continue;
            };
            let one = format!("{kind}_{}", sizes[0]);
            let beside_one = outcomes
                .iter()
                .find(|other| other.work == one && other.candidate == outcome.candidate);
            // A filter may have excluded it.
            let Some(beside_one) = beside_one else { continue };
            let size: usize = size.parse().expect("a number");
            if size == sizes[0] {
                continue;
            }
            let band = if size <= 10_000 { "10000" } else { "100000" };
            let works = [
                format!("publish_{band}"),
                format!("settled_{band}"),
                "receive".to_owned(),
                "longest".to_owned(),
            ];
            for ((work, figure), beside_one) in works.into_iter().zip(outcome.figures).zip(beside_one.figures) {
                self.consider(Row {
                    work,
                    candidate: outcome.candidate,
                    kind: format!("{size} {kind}"),
                    figure,
                    beside_one,
                });
            }
        }
    }

    fn consider(&mut self, row: Row) {
        let other = self
            .0
            .iter_mut()
            .find(|other| other.work == row.work && other.candidate == row.candidate);
        match other {
            Some(other) if row.work == "longest" && row.figure.median > other.figure.median => *other = row,
            Some(other) if row.work != "longest" && row.ratio() > other.ratio() => *other = row,
            Some(_) => {}
            None => self.0.push(row),
        }
    }

    /// Records them as `crowd/worst_…`, with the crowd of one as a candidate of its own.
    pub(crate) fn record(&self) {
        for row in &self.0 {
            let id = format!("crowd/worst_{}/{}", row.work, row.candidate);
            bench::figure(&id, row.figure);
            bench::figure(&format!("{id}_beside_one"), row.beside_one);
            bench::remark(&id, &format!("the worst crowd: {}", row.kind.replace('_', " ")));
        }
    }
}
