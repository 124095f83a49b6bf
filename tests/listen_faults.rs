//! The listener against failing servers and connections.

#[path = "listen_support/mod.rs"]
mod support;

#[path = "listen_support/proxy.rs"]
mod proxy;

#[path = "listen_faults/acknowledgements.rs"]
mod acknowledgements;
#[path = "listen_faults/outages.rs"]
mod outages;
#[path = "listen_faults/registrations.rs"]
mod registrations;
#[path = "listen_faults/silence.rs"]
mod silence;
