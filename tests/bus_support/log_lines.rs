//! The log lines of the bus.

use testkit::log_lines::LogLines;
use tracing::{Level, Metadata};

/// Whether a line is of the bus, at `INFO` or above.
pub(crate) fn of_bus(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("doorbell::bus") && *metadata.level() <= Level::INFO
}

/// Returns the levels of the lines that report a change of the state, and removes all lines.
pub(crate) fn take_state_changes(lines: &LogLines) -> Vec<Level> {
    let is_change = |line: &testkit::log_lines::LogLine| line.message.contains("state changed");
    lines
        .take()
        .into_iter()
        .filter(is_change)
        .map(|line| line.level)
        .collect()
}
