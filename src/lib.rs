//! doorbell

pub mod ring;
mod ringer;
mod sync;
