//! Poolers, standbys, promotions, switchovers, logical replicas and restored dumps.

mod bus_support;

#[path = "bus_failover/continuity.rs"]
mod continuity;
#[path = "bus_failover/logical_replica.rs"]
mod logical_replica;
#[path = "bus_failover/polling.rs"]
mod polling;
#[path = "bus_failover/promotion.rs"]
mod promotion;
#[path = "bus_failover/reinstalled.rs"]
mod reinstalled;
#[path = "bus_failover/restore.rs"]
mod restore;
#[path = "bus_failover/several_hosts.rs"]
mod several_hosts;
#[path = "bus_failover/switchover.rs"]
mod switchover;
