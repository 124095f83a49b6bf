//! doorbell

pub mod broadcast;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod ring;
mod ringer;
mod sync;
