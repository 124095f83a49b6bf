//! The buses over Postgres that are compared, and the processes that use them.

pub mod candidates;
pub mod delivery_tracker;
pub mod process;
pub mod timed_event;
pub mod worker;
