//! Why connection options cannot be used.

use thiserror::Error;

/// The connection options cannot be used as they are. Nothing was tried.
///
/// ```
/// use doorbell::listen::ListenConfig;
///
/// let error = "postgres://db.internal/app?sslmode=perhaps".parse::<ListenConfig>().unwrap_err();
/// assert!(error.to_string().contains("sslmode"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the connection options cannot be used: {0}")]
pub struct ConfigError(pub(super) String);

impl ConfigError {
    /// An error of a [`config_source`](crate::listen::ListenBuilder::config_source) of your own.
    ///
    /// ```
    /// use doorbell::listen::{ConfigError, ListenMultiplexer};
    ///
    /// let builder = ListenMultiplexer::builder()
    ///     .config_source(|| Err(ConfigError::new("the vault with the password does not answer")));
    /// ```
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}
