//! Where the instants of observation come from.

use core::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::tsc_clock;

/// The system's clock, or one that was given to the builder.
#[derive(Clone, Default)]
pub(super) enum Clock {
    #[default]
    System,
    Given(Arc<dyn Fn() -> SystemTime + Send + Sync>),
}

impl Clock {
    #[inline]
    pub(super) fn now(&self) -> SystemTime {
        match self {
            Self::System => tsc_clock::now(),
            Self::Given(clock) => clock(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Given(_) => "Given",
        })
    }
}
