//! The listener against real servers of many kinds.

#[path = "../listen_support/mod.rs"]
mod support;

mod attempts;
mod deafness;
mod encodings;
mod encryption;
mod lag;
mod names;
mod subscriptions;
mod timeouts;
