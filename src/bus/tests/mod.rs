//! Runs schedules of operations against a bus, and checks the guarantees of the contract. The fuzz targets run schedules, too.
//!
//! The schedules stand in for the tasks of the distributed bus, so these tests need the feature `postgres`, but no server.

#[cfg(test)]
mod bus;
mod checked_subscription;
mod harness;
#[cfg(test)]
mod history;
#[cfg(test)]
mod missing_events;
mod model_store;
#[cfg(test)]
mod notifications;
mod op;
#[cfg(test)]
mod random_schedules;
#[cfg(test)]
mod rewinds;
#[cfg(test)]
mod schedules;

pub use self::harness::run;
pub use self::op::{NotificationFate, Op, without_sweeps};
