//! Utilities shared by the tests, models and measurements of this repository. They do not depend on `doorbell`.
//!
//! | module | contents |
//! |---|---|
//! | [`account`] | checks that everything arrives once and in order, per stream |
//! | [`agreement`] | checks that all subscribers see the same value under each sequence number |
//! | [`alloc`] | a global allocator that counts |
//! | [`log_lines`] | collects log lines, and calls back for each (feature `tracing`) |
//! | [`panics`] | planned panics, and closures that must panic |
//! | [`proxy`] | a proxy in front of a PostgreSQL server that freezes, cuts, delays, refuses and injects (feature `tokio`) |
//! | [`random`] | seeded random numbers |
//! | [`sealed`] | values that show when they are torn |
//! | [`threads`] | time limits, `block_on`, joins |
//! | [`tracked`] | values that show when they leak or are dropped twice |
//! | [`wakers`] | wakers that count, call back or panic |
//! | [`within`] | time limits for tasks (feature `tokio`) |

pub mod account;
pub mod agreement;
pub mod alloc;
#[cfg(feature = "tracing")]
pub mod log_lines;
pub mod panics;
#[cfg(feature = "tokio")]
pub mod proxy;
pub mod random;
pub mod sealed;
pub mod threads;
pub mod tracked;
pub mod wakers;
#[cfg(feature = "tokio")]
pub mod within;
