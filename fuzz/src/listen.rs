//! `doorbell::listen`, as far as text goes.

#[path = "../../src/listen/channel_name.rs"]
mod channel;
pub(crate) mod config;
#[path = "../../src/listen/error.rs"]
mod error;
pub mod names;
