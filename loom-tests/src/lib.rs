//! loom models of doorbell's own types.
//!
//! The engine's source is compiled here a second time, beside a `sync` module in which every atomic, cell and lock is
//! loom's. The models therefore check the code that ships, and neither the engine nor this crate needs a `cfg` or an environment
//! variable. `cargo run --release -p doorbell-loom` runs the models; `--bin mutants` weakens every ordering and requires that
//! some model fails.

mod check;
pub mod child;
pub mod killers;
mod models;
pub mod mutation;
pub mod ordering_table;
pub mod parallel;
pub mod registry;
pub mod repository;
pub mod self_check;
pub mod sites;
#[allow(
    dead_code,
    unused_imports,
    reason = "the same surface as the engine's own facade, whether used or not"
)]
mod sync;
mod wake_watchdog;

/// The cluster events, compiled over loom.
#[allow(dead_code, unused_imports, reason = "the models use a part of it")]
#[path = "../../src/cluster/mod.rs"]
pub mod cluster;

/// The drop-in, compiled over loom.
#[allow(
    dead_code,
    unused_imports,
    unexpected_cfgs,
    reason = "the models use a part of it, without its features"
)]
#[path = "../../src/broadcast/mod.rs"]
pub mod broadcast;

/// The engine, compiled over loom.
#[allow(
    dead_code,
    unused_imports,
    unexpected_cfgs,
    clippy::absurd_extreme_comparisons,
    clippy::reversed_empty_ranges,
    reason = "the models use a part of the engine, without its features, and spin zero times"
)]
#[path = "../../src/ring/mod.rs"]
pub mod ring;
