//! Errors in connection options.

use thiserror::Error;

/// The error for connection options or settings that are unusable, or that lead to a server other than PostgreSQL.
///
/// ```
/// use doorbell::listen::ListenConfig;
///
/// let error = "postgres://db.internal/app?sslmode=perhaps".parse::<ListenConfig>().unwrap_err();
/// assert!(error.to_string().contains("sslmode"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("configuration error: {0}")]
pub struct ConfigError(pub(super) String);

impl ConfigError {
    /// Creates an error for a [`config_source`](crate::listen::ListenBuilder::config_source) that fails.
    ///
    /// ```
    /// use doorbell::listen::{ConfigError, ListenMultiplexer};
    ///
    /// let builder = ListenMultiplexer::builder()
    ///     .config_source(|| Err(ConfigError::new("the secret store does not answer")));
    /// ```
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}
