//! Errors of the bus.

use thiserror::Error;

use crate::store::{InvalidStreamKey, StoreError};

/// An error of the bus.
///
/// ```
/// use doorbell::bus::{BusError, EventBus, LocalBus};
///
/// let bus = LocalBus::new();
/// let subscription = bus.subscribe("");
/// let error = futures::executor::block_on(subscription.ready()).unwrap_err();
/// assert!(matches!(error, BusError::InvalidStreamKey(_)));
/// ```
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum BusError {
    /// The bus is shut down. The events in the store are not affected.
    #[error("the bus is shut down")]
    Closed,
    /// The key cannot name a stream.
    #[error(transparent)]
    InvalidStreamKey(#[from] InvalidStreamKey),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A setting is out of range.
    #[error("invalid {setting}: {value}; must be {bounds}")]
    InvalidSetting {
        /// The name of the setting.
        setting: &'static str,
        /// The rejected value.
        value: String,
        /// The allowed values.
        bounds: &'static str,
    },
    /// The listening connection cannot be opened, or its LISTEN failed. The bus keeps retrying, and polls the store in the
    /// meantime.
    #[cfg(feature = "postgres")]
    #[error("the bus receives no notifications: {0}")]
    Listen(#[from] crate::listen::ListenError),
    /// The bus and its store are set to different notification channels, so the bus would not receive all of the store's
    /// notifications. Nothing was started. Set the same channel on both, or only on the store.
    #[cfg(feature = "postgres")]
    #[error(
        "the bus is set to the notification channel {bus:?}, but its store notifies on {store:?}; set the store's channel, and none on the bus"
    )]
    ChannelMismatch {
        /// The channel that is set on the bus.
        bus: String,
        /// The channel of the store.
        store: String,
    },
    /// The bus cannot send notifications: other processes get its events by their sweeps, within their poll interval if they know, or
    /// else within their sweep interval. The bus keeps retrying; nothing is lost.
    #[cfg(feature = "postgres")]
    #[error("the bus cannot send notifications, so its events reach other processes by their sweeps: {reason}")]
    NotificationsNotSent {
        /// The server's message, or what was found about the server.
        reason: String,
    },
    /// A task of the bus panicked, so the bus has shut down: it cannot know what else is wrong. This is a bug in this crate, or in code
    /// that it runs, such as a `tracing` subscriber; the panic hook has reported where. No events are lost; create another bus.
    #[cfg(feature = "postgres")]
    #[error("{task} panicked, so the bus has shut down: {message}")]
    Panicked {
        /// The task.
        task: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// The bus has no tokio runtime; its first call must be made from inside one.
    #[cfg(feature = "postgres")]
    #[error("the bus has no tokio runtime: call it from inside one")]
    NoRuntime,
}
