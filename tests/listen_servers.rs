//! The listener against real servers and poolers. `listen_faults` tests failures, `encrypted_connections` tests TLS.

mod listen_support;

#[path = "listen_servers/attempts.rs"]
mod attempts;
#[path = "listen_servers/encodings.rs"]
mod encodings;
#[path = "listen_servers/lag.rs"]
mod lag;
#[path = "listen_servers/names.rs"]
mod names;
#[path = "listen_servers/subscriptions.rs"]
mod subscriptions;
#[path = "listen_servers/timeouts.rs"]
mod timeouts;
#[path = "listen_servers/undelivered.rs"]
mod undelivered;
