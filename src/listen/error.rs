//! Why the listener, or one call of it, failed.

use core::time::Duration;

use thiserror::Error;

use super::channel_name::{InvalidChannel, InvalidPayload};
use crate::pg::config::ConfigError;
pub use crate::pg::server_error::ServerError;

/// Why the listener, or one call of it, failed. Cloned freely: everybody who waited for the same thing gets the same error.
///
/// A lost connection is not an error of the listener: it reconnects by itself, and says in its
/// [health](super::ListenHealth) what it is struggling with.
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
    /// The text cannot name a channel.
    #[error(transparent)]
    InvalidChannel(#[from] InvalidChannel),
    /// The payload cannot be sent.
    #[error(transparent)]
    InvalidPayload(#[from] InvalidPayload),
    /// The connection settings cannot be used as they are. Nothing was tried.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no tokio runtime to run on. Call from within one.
    #[error("the listener runs on a tokio runtime, and there is none here; call from a task, or inside Runtime::enter")]
    NoRuntime,
    /// No connection could be made.
    #[error("cannot connect: {0}")]
    Connect(ServerError),
    /// The connection was lost.
    #[error("the connection was lost: {0}")]
    Lost(ServerError),
    /// The server did not answer in time: the connection is taken for dead, or was never made.
    #[error("no answer to {what} within {after:?}")]
    Timeout {
        /// What was asked.
        what: &'static str,
        /// How long the listener waited.
        after: Duration,
    },
    /// The server refused to listen on the channel.
    #[error("the server refused LISTEN on channel {channel:?}: {error}")]
    Listen {
        /// The channel.
        channel: String,
        /// What the server said.
        error: ServerError,
    },
    /// The server refused to send the notification; it was not sent.
    #[error("the server refused the notification, which was not sent: {0}")]
    Notify(ServerError),
    /// The connection was lost after the notification was handed to it; it may or may not have been sent.
    #[error(
        "the connection was lost before the server confirmed the notification, which may or may not have been sent"
    )]
    NotifyUnknown,
    /// The server is a standby, and standbys have no notifications. Connect to the primary, or wait for a promotion: the
    /// listener tries again by itself.
    #[error("the server is a standby, where LISTEN does not work; connect to the primary")]
    Standby,
    /// LISTEN is accepted and nothing arrives: there is a pooler in between that changes sessions with every transaction.
    /// Connect the listener directly.
    #[error(
        "LISTEN is accepted but nothing arrives, as behind a pooler in transaction mode; connect the listener directly"
    )]
    NotDelivered,
    /// The session has lost registrations that it had, as by `UNLISTEN *` or `DISCARD ALL`.
    #[error("the session no longer listens on {missing} channels that it had registered")]
    RegistrationLost {
        /// How many channels.
        missing: usize,
    },
    /// The time limit passed before the server had acknowledged. Nothing stays registered.
    #[error("not acknowledged within {waited:?}{}", because(.reason))]
    NotReady {
        /// The limit.
        waited: Duration,
        /// What the listener was struggling with, if it was.
        reason: Option<Box<ListenError>>,
    },
    /// The listener has been shut down, or its runtime has.
    #[error("the listener has been shut down")]
    ShutDown,
}

fn because(reason: &Option<Box<ListenError>>) -> String {
    reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

impl ListenError {
    /// Whether trying again soon makes no sense because somebody has to change something first: the password, the name of the
    /// database, the server that is connected to.
    pub(super) fn is_lasting(&self) -> bool {
        match self {
            Self::Config(_) | Self::Standby => true,
            Self::Connect(error) => error.sqlstate().is_some_and(|code| {
                // 28: authorization; 3D: the database does not exist; 42: no permission; 0A: not supported.
                ["28", "3D", "42", "0A"].iter().any(|class| code.starts_with(class))
            }),
            _ => false,
        }
    }
}
