//! Another server in the server's place: poolers, standbys, promotions, restored dumps.

mod bus_support;

#[path = "bus_failover/elsewhere.rs"]
mod elsewhere;
#[path = "bus_failover/promotion.rs"]
mod promotion;
#[path = "bus_failover/restored.rs"]
mod restored;
