//! The errors of a listener.

use core::time::Duration;

use thiserror::Error;

use super::channel_name::{InvalidChannel, InvalidPayload};
use crate::pg::config::ConfigError;
pub use crate::pg::server_error::ServerError;

/// The error of a listener or of one of its methods.
///
/// Cheap to clone: all callers that waited for the same thing get the same error.
///
/// A lost connection is not a failure of the listener: it reconnects automatically, and reports the reason in its
/// [health](super::ListenHealth).
///
/// ```
/// use doorbell::listen::{ListenError, ListenMultiplexer};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let refused = ListenMultiplexer::connect("postgres://localhost:1/app?connect_timeout=2").await;
/// assert!(matches!(refused, Err(ListenError::Connect(_))));
/// # });
/// ```
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The channel name is invalid.
    #[error(transparent)]
    InvalidChannel(#[from] InvalidChannel),
    /// The payload is invalid.
    #[error(transparent)]
    InvalidPayload(#[from] InvalidPayload),
    /// The connection options or settings are unusable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The listener was started, or its method was polled, outside a tokio runtime.
    #[error("the listener must be started and called inside a tokio runtime")]
    NoRuntime,
    /// The attempt to connect failed.
    #[error("cannot connect: {0}")]
    Connect(ServerError),
    /// The connection was lost.
    #[error("connection lost: {0}")]
    Lost(ServerError),
    /// The server did not answer in time. The connection counts as dead.
    #[error("no answer to {what} within {after:?}")]
    Timeout {
        /// The statement or step that was not answered.
        what: &'static str,
        /// The time limit.
        after: Duration,
    },
    /// The server refused to listen on the channel.
    #[error("the server refused LISTEN on channel {channel:?}: {error}")]
    Listen {
        /// The channel.
        channel: String,
        /// The server's error.
        error: ServerError,
    },
    /// The server refused the notification; it was not sent.
    #[error("the server refused the notification: {0}")]
    Notify(ServerError),
    /// The connection was lost before the server confirmed the notification. It may or may not have been sent.
    #[error("connection lost before the server confirmed the notification; it may or may not have been sent")]
    NotifyUnknown,
    /// The server is a standby, where LISTEN does not work. Connect to the primary, or wait for a promotion: the listener tries
    /// again automatically.
    #[error("the server is a standby, where LISTEN does not work; connect to the primary")]
    Standby,
    /// New connections lead to another primary than this one. The listener connects again.
    #[error("new connections lead to another primary than the listening connection")]
    Superseded,
    /// LISTEN succeeded but no notification arrived, as behind a pooler in transaction mode. Connect the listener directly.
    #[error(
        "LISTEN succeeded but no notification arrived, as behind a pooler in transaction mode; connect directly to the server"
    )]
    NotDelivered,
    /// The session no longer listens on some of its channels, as after `UNLISTEN *` or `DISCARD ALL`.
    #[error("the session no longer listens on {missing} of its channels")]
    RegistrationLost {
        /// Number of channels.
        missing: usize,
    },
    /// The server did not acknowledge within the time limit. Nothing stays registered.
    #[error("not acknowledged within {waited:?}{}", suffix(.reason))]
    NotReady {
        /// The time limit.
        waited: Duration,
        /// Why the listener was not healthy, if it was not.
        reason: Option<Box<ListenError>>,
    },
    /// The listener's task panicked, so the listener has ended. This is a bug in this crate, or in code that it runs, such as a `tracing`
    /// subscriber; the panic hook has reported where. Start another listener.
    #[error("the listener's task panicked, so the listener has ended")]
    Panicked,
    /// The listener or its runtime has been shut down, or its task panicked.
    #[error("the listener has been shut down")]
    ShutDown,
}

fn suffix(reason: &Option<Box<ListenError>>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

impl ListenError {
    /// Returns `true` if a person must change something (a password, the database, the server) before an attempt can succeed.
    pub(super) fn needs_intervention(&self) -> bool {
        match self {
            Self::Config(_) => true,
            Self::Connect(error) => error.refuses_login(),
            _ => false,
        }
    }
}
