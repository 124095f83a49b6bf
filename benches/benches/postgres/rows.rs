//! The groups of measurements.

pub(crate) mod appends;
pub(crate) mod fan_out;
pub(crate) mod idle;
pub(crate) mod notifications;
pub(crate) mod outage;
