//! Collects the log lines of the bus.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// The lines of `doorbell::bus` at `INFO` and above, with their levels.
#[derive(Clone)]
pub(crate) struct LogLines {
    lines: Arc<Mutex<Vec<(Level, String)>>>,
    _second: Dispatch,
}

impl Default for LogLines {
    fn default() -> Self {
        Self {
            lines: Arc::default(),
            _second: second_dispatch(),
        }
    }
}

/// To be held beside the subscriber of one thread. While a process has a single subscriber, `tracing` asks that of the thread that first
/// reaches a line, so that a thread without one would disable the line for all.
pub(crate) fn second_dispatch() -> Dispatch {
    Dispatch::new(NoSubscriber::new())
}

impl LogLines {
    /// Returns and removes the levels of the lines that report a change of the state.
    pub(crate) fn take_state_changes(&self) -> Vec<Level> {
        let lines = std::mem::take(&mut *self.lines.lock().unwrap());
        let is_change = |(_, line): &&(Level, String)| line.contains("state changed");
        lines.iter().filter(is_change).map(|&(level, _)| level).collect()
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("doorbell::bus") && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.lines.lock().unwrap().push((*event.metadata().level(), fields.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}
