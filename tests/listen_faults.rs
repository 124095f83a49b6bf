//! The listener against failing servers and connections.

mod listen_support;

#[path = "listen_faults/acknowledgements.rs"]
mod acknowledgements;
#[path = "listen_faults/outages.rs"]
mod outages;
#[path = "listen_faults/registrations.rs"]
mod registrations;
#[path = "listen_faults/silence.rs"]
mod silence;
