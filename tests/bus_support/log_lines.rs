//! Collects the log lines of the bus.

use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The lines of `doorbell::bus` at `INFO` and above, with their levels.
#[derive(Clone, Default)]
pub(crate) struct LogLines(Arc<Mutex<Vec<(Level, String)>>>);

impl LogLines {
    /// Returns and removes the levels of the lines that report a change of the state.
    pub(crate) fn take_state_changes(&self) -> Vec<Level> {
        let lines = std::mem::take(&mut *self.0.lock().unwrap());
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
        self.0.lock().unwrap().push((*event.metadata().level(), fields.0));
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
