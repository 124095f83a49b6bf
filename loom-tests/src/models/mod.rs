//! The models, one file a theme.

use crate::registry::Model;

/// Every model, theme by theme.
pub(crate) const ALL: &[&[Model]] = &[];
