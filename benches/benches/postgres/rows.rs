//! What is measured, group by group.

pub(crate) mod appends;
pub(crate) mod fan_out;
pub(crate) mod idle;
pub(crate) mod notifications;
pub(crate) mod outage;
