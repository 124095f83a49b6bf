//! The properties that the fuzz targets check. Each public module has a function `check`, which takes any bytes and panics if a
//! property does not hold.

pub mod connection;
mod input;
pub mod json;
pub mod names;
pub mod notifications;
pub mod notify_queue;
pub mod packing;
pub mod payload;
mod planted;
mod reference_parser;
