//! What the clustered bus delivers, against a real server that nothing is wrong with.

mod bus_support;

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
