//! Why the bus did not do it.

use thiserror::Error;

use crate::store::{InvalidStreamKey, StoreError};

/// Why the bus did not do what it was asked to.
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
    /// The bus is shut down, and takes and delivers nothing any more. What is in the store stays there.
    #[error("the bus is shut down")]
    Closed,
    /// The text cannot name a stream.
    #[error(transparent)]
    InvalidStreamKey(#[from] InvalidStreamKey),
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A setting is outside its bounds.
    #[error("{setting} is {value}, and has to be {bounds}")]
    InvalidSetting {
        /// The setting.
        setting: &'static str,
        /// What was asked for.
        value: String,
        /// What is possible.
        bounds: &'static str,
    },
    /// The connection that listens for doorbells does not stand, or its LISTEN failed. The bus goes on trying, and delivers by
    /// polling meanwhile.
    #[cfg(feature = "postgres")]
    #[error("the bus does not hear doorbells: {0}")]
    Listen(#[from] crate::listen::ListenError),
    /// The call needs a tokio runtime, and there is none.
    #[cfg(feature = "postgres")]
    #[error("the bus needs a tokio runtime: call it from inside one")]
    NoRuntime,
}
