//! What the long measurements of this crate and the benchmarks in `benches/` share.

#![allow(missing_docs, reason = "an internal library")]

#[cfg(feature = "benches")]
pub mod bench;
#[cfg(feature = "postgres")]
pub mod bus;
pub mod channels;
#[cfg(feature = "postgres")]
pub mod chaos;
#[cfg(feature = "postgres")]
pub mod child;
pub mod latencies;
pub mod table;
