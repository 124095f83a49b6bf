//! Faults to be found: with `PLANTED=1` in the environment each target has one, and a fuzzer that looks finds it from nothing.

use std::sync::LazyLock;

/// Whether the target is to have its fault.
pub(crate) fn is_planted() -> bool {
    static PLANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("PLANTED").is_some());
    *PLANTED
}
