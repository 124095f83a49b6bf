//! The listener against servers, lines and peers that fail.

#[path = "../listen_support/mod.rs"]
mod support;

#[path = "../listen_support/proxy.rs"]
mod proxy;

mod acknowledgements;
mod outages;
mod registrations;
mod silence;
