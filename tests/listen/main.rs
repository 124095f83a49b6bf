//! The listener against a real server that behaves.

#[path = "../listen_support/mod.rs"]
mod support;

mod subscriptions;
