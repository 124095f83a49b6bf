//! Planted bugs: with `PLANTED=1` in the environment every target has one, which the fuzzer must find without any seed.

use std::sync::LazyLock;

/// Whether the target plants its bug.
pub(crate) fn is_planted() -> bool {
    static PLANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("PLANTED").is_some());
    *PLANTED
}
