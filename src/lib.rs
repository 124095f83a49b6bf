//! doorbell

mod sync;
pub mod ring;
