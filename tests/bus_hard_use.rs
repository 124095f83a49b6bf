//! Unusual events, races, runtimes and slow subscribers.

mod bus_support;

#[path = "bus_hard_use/payloads.rs"]
mod payloads;
#[path = "bus_hard_use/races.rs"]
mod races;
#[path = "bus_hard_use/runtimes.rs"]
mod runtimes;
#[path = "bus_hard_use/slow.rs"]
mod slow;
