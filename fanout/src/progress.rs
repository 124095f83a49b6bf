//! Progress on a terminal; nothing when standard error is not one.

use std::cell::Cell;
use std::time::{Duration, Instant};

use doorbell::ring::Publisher;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::Event;
use crate::publish::Published;

/// How often the progress is written, and at most how late a signal is noticed.
pub(crate) const REFRESH: Duration = Duration::from_millis(100);

/// A bar when the size of the input is known, else a spinner.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: Cell<Instant>,
}

impl Progress {
    pub(crate) fn new(bytes: Option<u64>) -> Self {
        let bar = match bytes {
            Some(bytes) => ProgressBar::new(bytes).with_style(style("{bar:24} {percent:>3} %  {wide_msg}")),
            None => ProgressBar::new_spinner().with_style(style("{spinner} {elapsed}  {wide_msg}")),
        };
        if !bar.is_hidden() {
            bar.set_message("waiting for input");
            bar.enable_steady_tick(REFRESH);
        }
        Self {
            bar,
            shown: Cell::new(Instant::now()),
        }
    }

    /// Cheap enough to call after every event.
    ///
    /// `bytes_of_lines` were published of the chunk that is not yet counted in `bytes_read`.
    pub(crate) fn show(&self, published: &Published, bytes_of_lines: u64, publisher: &Publisher<Event>) {
        let Some(started) = published.started else { return };
        if self.bar.is_hidden() || self.shown.get().elapsed() < REFRESH {
            return;
        }
        self.shown.set(Instant::now());
        let stats = publisher.stats();
        let slowest = stats.slowest_position.unwrap_or(stats.next_seq);
        self.bar.set_position(published.bytes_read + bytes_of_lines);
        self.bar.set_message(format!(
            "{} events, {}/s, slowest subscriber {} behind",
            HumanCount(published.events),
            HumanCount((published.events as f64 / started.elapsed().as_secs_f64()) as u64),
            HumanCount(stats.next_seq.saturating_sub(slowest)),
        ));
    }

    /// The input has ended; the subscribers have not.
    pub(crate) fn draining(&self) {
        self.bar.set_style(style("{spinner} {wide_msg}"));
        self.bar
            .set_message("published; waiting for the subscribers to drain (Ctrl-C speeds up the slow ones)");
    }

    /// Clears the terminal line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates are constants")
}
