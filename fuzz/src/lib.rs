//! What the fuzz targets check. Each public module has a `check`, which takes any bytes and panics if a property does not hold.
//!
//! What is checked is private, so the crate's own files are compiled here a second time, beside what they need; the crate has
//! no door for it.

#[allow(dead_code, unreachable_pub, unused_imports, reason = "the targets use a part")]
mod bus;
pub mod connection;
pub mod notifications;
mod input;
pub mod json;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the targets use a part")]
mod listen;
pub mod packing;
pub mod payload;
mod planted;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the targets use a part")]
#[path = "../../src/ring/mod.rs"]
mod ring;
#[allow(dead_code, reason = "the targets use a part")]
#[path = "../../src/ring/wake_watchdog.rs"]
mod notifier;
pub mod ringing;
mod spelling;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the targets use a part")]
mod store;
#[allow(dead_code, unused_imports, reason = "the targets use a part")]
#[path = "../../src/sync.rs"]
mod sync;

pub use listen::names;
