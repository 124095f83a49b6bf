//! The figures of a run, and whether they meet the targets.

use std::fmt::Write;

use doorbell_perf::bus::delivery_tracker::DeliveryErrors;
use doorbell_perf::table::{Align, Table};

/// One target of the bus.
struct Verdict {
    what: String,
    target: String,
    measured: String,
    met: bool,
}

/// All figures of a run.
#[derive(Default)]
pub(crate) struct Report {
    verdicts: Vec<Verdict>,
    /// Title and text.
    sections: Vec<(String, String)>,
    errors: Vec<(String, DeliveryErrors)>,
}

impl Report {
    /// Records a target and whether it was met.
    pub(crate) fn judge(
        &mut self,
        what: impl Into<String>,
        target: impl Into<String>,
        measured: impl Into<String>,
        met: bool,
    ) {
        self.verdicts.push(Verdict {
            what: what.into(),
            target: target.into(),
            measured: measured.into(),
            met,
        });
    }

    /// Records a ratio that should be at most `most`.
    pub(crate) fn at_most(&mut self, what: impl Into<String>, most: f64, ratio: f64) {
        self.judge(what, format!("≤ {most} ×"), format!("{ratio:.2} ×"), ratio <= most);
    }

    /// Records a ratio that should be at least `least`.
    pub(crate) fn at_least(&mut self, what: impl Into<String>, least: f64, ratio: f64) {
        self.judge(what, format!("≥ {least} ×"), format!("{ratio:.2} ×"), ratio >= least);
    }

    /// Adds figures.
    pub(crate) fn section(&mut self, title: impl Into<String>, table: &Table) {
        self.sections.push((title.into(), table.render()));
    }

    /// Records what one measurement lost, repeated or reordered.
    pub(crate) fn count(&mut self, measurement: impl Into<String>, errors: DeliveryErrors) {
        self.errors.push((measurement.into(), errors));
    }

    /// Whether everything arrived once and in order.
    pub(crate) fn is_clean(&self) -> bool {
        self.errors
            .iter()
            .all(|(_, errors)| *errors == DeliveryErrors::default())
    }

    /// All figures and errors, or only the errors.
    pub(crate) fn render(&self, with_figures: bool) -> String {
        let mut text = String::new();
        if with_figures {
            self.figures(&mut text);
        }
        for (measurement, errors) in &self.errors {
            if *errors != DeliveryErrors::default() {
                let _ = writeln!(text, "WRONG: {measurement}: {errors:?}");
            }
        }
        if self.is_clean() {
            let _ = writeln!(
                text,
                "Nothing was lost, repeated or reordered in {} measurements.",
                self.errors.len()
            );
        }
        text
    }

    fn figures(&self, text: &mut String) {
        for (title, table) in &self.sections {
            let _ = writeln!(text, "\n## {title}\n\n{table}");
        }
        if !self.verdicts.is_empty() {
            let mut table = Table::new(&[
                ("what", Align::Left),
                ("target", Align::Right),
                ("measured", Align::Right),
                ("met", Align::Left),
            ]);
            for verdict in &self.verdicts {
                let met = if verdict.met { "yes" } else { "NO" };
                table.row(&[
                    verdict.what.clone(),
                    verdict.target.clone(),
                    verdict.measured.clone(),
                    met.to_owned(),
                ]);
            }
            let met = self.verdicts.iter().filter(|verdict| verdict.met).count();
            let _ = writeln!(
                text,
                "\n## Targets\n\n{}\n{met} of {} targets met.",
                table.render(),
                self.verdicts.len()
            );
        }
    }
}

/// The median. Panics if there are no figures.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
