//! Collects log lines, and calls back for each.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// A log line.
#[derive(Clone, Debug)]
pub struct LogLine {
    /// The level.
    pub level: Level,
    /// The module that wrote it.
    pub target: String,
    /// The message.
    pub message: String,
    /// The other fields.
    pub fields: String,
}

/// Lines that a [`subscriber`](Self::subscriber) has collected.
#[derive(Clone, Debug, Default)]
pub struct LogLines(Arc<Mutex<Vec<LogLine>>>);

impl LogLines {
    /// Returns a subscriber that collects the lines that are `wanted`.
    pub fn subscriber(&self, wanted: fn(&Metadata<'_>) -> bool) -> OnLine<impl Fn(&Event<'_>) + Send + Sync + 'static> {
        let lines = self.clone();
        OnLine::new(wanted, move |event| {
            let mut line = LogLine {
                level: *event.metadata().level(),
                target: event.metadata().target().to_owned(),
                message: String::new(),
                fields: String::new(),
            };
            event.record(&mut line);
            lines.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        })
    }

    /// Returns and removes all lines.
    pub fn take(&self) -> Vec<LogLine> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields += &format!(" {name}={value:?}"),
        }
    }
}

/// A subscriber that calls a closure for each line.
pub struct OnLine<F> {
    wanted: fn(&Metadata<'_>) -> bool,
    on_line: F,
    /// While a process has a single subscriber, `tracing` asks that of the thread that first reaches a line, so that a thread without one
    /// would disable the line for all.
    _second: Dispatch,
}

impl<F: Fn(&Event<'_>) + 'static> OnLine<F> {
    /// Calls `on_line` for each line that is `wanted`.
    pub fn new(wanted: fn(&Metadata<'_>) -> bool, on_line: F) -> Self {
        Self {
            wanted,
            on_line,
            _second: Dispatch::new(NoSubscriber::new()),
        }
    }
}

impl<F: Fn(&Event<'_>) + 'static> Subscriber for OnLine<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && (self.wanted)(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        (self.on_line)(event);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
