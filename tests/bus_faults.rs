//! The bus while its server breaks: every event arrives, once and in order, whatever happens to the connections.

mod bus_support;

#[path = "bus_faults/encodings.rs"]
mod encodings;
#[path = "bus_faults/frozen.rs"]
mod frozen;
#[path = "bus_faults/large_reads.rs"]
mod large_reads;
#[path = "bus_faults/listener_panics.rs"]
mod listener_panics;
#[path = "bus_faults/logins.rs"]
mod logins;
#[path = "bus_faults/notify_failures.rs"]
mod notify_failures;
#[path = "bus_faults/refused_appends.rs"]
mod refused_appends;
#[path = "bus_faults/restarts.rs"]
mod restarts;
#[path = "bus_faults/settings.rs"]
mod settings;
#[path = "bus_faults/store_faults.rs"]
mod store_faults;
#[path = "bus_faults/terminated.rs"]
mod terminated;
#[path = "bus_faults/timeouts.rs"]
mod timeouts;
