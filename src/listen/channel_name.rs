//! Checks channel names and payloads, for the whole crate.

use core::borrow::Borrow;
use core::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The maximum length of a channel name, in bytes. Postgres truncates longer identifiers, silently in the case of `LISTEN`.
///
/// ```
/// assert_eq!(doorbell::listen::MAX_CHANNEL_BYTES, 63);
/// ```
pub const MAX_CHANNEL_BYTES: usize = 63;

/// The maximum length of a notification's payload, in bytes; Postgres refuses a longer one.
///
/// ```
/// assert_eq!(doorbell::listen::MAX_PAYLOAD_BYTES, 7999);
/// ```
pub const MAX_PAYLOAD_BYTES: usize = 7999;

/// The error for an invalid channel name. Nothing was registered or sent.
///
/// ```
/// use doorbell::listen::{InvalidChannel, ListenMultiplexer};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start()?;
/// assert_eq!(mux.subscribe_lazy("").unwrap_err(), InvalidChannel::Empty);
/// assert_eq!(mux.subscribe_lazy(&"c".repeat(64)).unwrap_err(), InvalidChannel::TooLong { bytes: 64 });
/// assert_eq!(mux.subscribe_lazy("a\0b").unwrap_err(), InvalidChannel::Nul);
/// # Ok::<_, doorbell::listen::ListenError>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum InvalidChannel {
    /// The name is empty.
    #[error("channel name is empty")]
    Empty,
    /// The name is longer than [`MAX_CHANNEL_BYTES`].
    #[error("channel name has {bytes} bytes; the limit is {MAX_CHANNEL_BYTES}")]
    TooLong {
        /// Length of the name, in bytes.
        bytes: usize,
    },
    /// The name contains a NUL byte, which Postgres cannot store.
    #[error("channel name contains a NUL byte")]
    Nul,
}

/// The error for an invalid payload. Nothing was sent.
///
/// ```
/// use doorbell::listen::{InvalidPayload, ListenError, ListenMultiplexer};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mux = ListenMultiplexer::builder().url("postgres://localhost:1/app").start()?;
/// let refused = mux.notify("jobs", &"x".repeat(8000)).await;
/// assert!(matches!(refused, Err(ListenError::InvalidPayload(InvalidPayload::TooLong { bytes: 8000 }))));
/// # Ok::<_, ListenError>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum InvalidPayload {
    /// The payload is longer than [`MAX_PAYLOAD_BYTES`].
    #[error("payload has {bytes} bytes; the limit is {MAX_PAYLOAD_BYTES}")]
    TooLong {
        /// Length of the payload, in bytes.
        bytes: usize,
    },
    /// The payload contains a NUL byte, which Postgres cannot store.
    #[error("payload contains a NUL byte")]
    Nul,
}

pub(crate) fn check_channel(name: &str) -> Result<(), InvalidChannel> {
    match name.len() {
        0 => Err(InvalidChannel::Empty),
        bytes if bytes > MAX_CHANNEL_BYTES => Err(InvalidChannel::TooLong { bytes }),
        _ if name.contains('\0') => Err(InvalidChannel::Nul),
        _ => Ok(()),
    }
}

pub(crate) fn check_payload(payload: &str) -> Result<(), InvalidPayload> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(InvalidPayload::TooLong { bytes: payload.len() });
    }
    if payload.contains('\0') {
        return Err(InvalidPayload::Nul);
    }
    Ok(())
}

/// A valid channel name, cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ChannelName(Arc<str>);

impl ChannelName {
    pub(super) fn new(name: &str) -> Result<Self, InvalidChannel> {
        check_channel(name)?;
        Ok(Self(name.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Allows map lookups by the text that the server sends.
impl Borrow<str> for ChannelName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ChannelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_counts_bytes_not_characters() {
        assert_eq!(ChannelName::new("").unwrap_err(), InvalidChannel::Empty);
        assert_eq!(ChannelName::new("\0").unwrap_err(), InvalidChannel::Nul);
        assert!(ChannelName::new(&"x".repeat(63)).is_ok());
        assert_eq!(
            ChannelName::new(&"x".repeat(64)).unwrap_err(),
            InvalidChannel::TooLong { bytes: 64 }
        );
        assert!(ChannelName::new(&"é".repeat(31)).is_ok());
        assert_eq!(
            ChannelName::new(&"é".repeat(32)).unwrap_err(),
            InvalidChannel::TooLong { bytes: 64 }
        );
    }
}
