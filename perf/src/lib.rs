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
#[cfg(feature = "benches")]
pub mod clock;
pub mod latencies;
#[cfg(feature = "benches")]
pub mod pin;
#[cfg(feature = "benches")]
pub mod rounds;
pub mod table;
