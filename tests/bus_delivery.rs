//! What the clustered bus delivers, against a real server that nothing is wrong with.

#[path = "bus_support/mod.rs"]
mod support;

#[path = "listen_support/proxy.rs"]
#[allow(dead_code, reason = "the listener's tests use the rest")]
mod proxy;

#[path = "bus_delivery/bells.rs"]
mod bells;
#[path = "bus_delivery/crowd.rs"]
mod crowd;
#[path = "bus_delivery/ending.rs"]
mod ending;
#[path = "bus_delivery/keys.rs"]
mod keys;
#[path = "bus_delivery/registrations.rs"]
mod registrations;
#[path = "bus_delivery/transactions.rs"]
mod transactions;
