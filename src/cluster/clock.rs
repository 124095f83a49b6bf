//! The publisher's clock.

use core::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::tsc_clock;

/// The system clock, or the one set with the builder.
#[derive(Clone, Default)]
pub(super) enum Clock {
    #[default]
    System,
    Custom(Arc<dyn Fn() -> SystemTime + Send + Sync>),
}

impl Clock {
    #[inline]
    pub(super) fn now(&self) -> SystemTime {
        match self {
            Self::System => tsc_clock::now(),
            Self::Custom(clock) => clock(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Custom(_) => "Custom",
        })
    }
}
