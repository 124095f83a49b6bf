//! Names of channels: checked once, quoted wherever they go into SQL.

use core::borrow::Borrow;
use core::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The longest channel name in bytes: Postgres's identifiers hold 63, and `LISTEN` silently cuts what is longer.
///
/// ```
/// assert_eq!(doorbell::listen::MAX_CHANNEL_BYTES, 63);
/// ```
pub const MAX_CHANNEL_BYTES: usize = 63;

/// The longest payload in bytes that Postgres takes.
///
/// ```
/// assert_eq!(doorbell::listen::MAX_PAYLOAD_BYTES, 7999);
/// ```
pub const MAX_PAYLOAD_BYTES: usize = 7999;

/// The text cannot name a channel. Nothing was registered or sent.
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
    /// It is empty.
    #[error("a channel name cannot be empty")]
    Empty,
    /// It is longer than [`MAX_CHANNEL_BYTES`].
    #[error("a channel name has at most 63 bytes, this one has {bytes}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It contains a NUL, which Postgres cannot hold.
    #[error("a channel name cannot contain a NUL byte")]
    Nul,
}

/// The payload cannot be sent. Nothing was.
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
    /// It is longer than [`MAX_PAYLOAD_BYTES`].
    #[error("a notification carries at most 7999 bytes, this payload has {bytes}")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// It contains a NUL, which Postgres cannot hold.
    #[error("a notification cannot carry a NUL byte")]
    Nul,
}

pub(super) fn check_payload(payload: &str) -> Result<(), InvalidPayload> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(InvalidPayload::TooLong { bytes: payload.len() });
    }
    if payload.contains('\0') {
        return Err(InvalidPayload::Nul);
    }
    Ok(())
}

/// A checked name; cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ChannelName(Arc<str>);

impl ChannelName {
    pub(super) fn new(name: &str) -> Result<Self, InvalidChannel> {
        match name.len() {
            0 => Err(InvalidChannel::Empty),
            bytes if bytes > MAX_CHANNEL_BYTES => Err(InvalidChannel::TooLong { bytes }),
            _ if name.contains('\0') => Err(InvalidChannel::Nul),
            _ => Ok(Self(name.into())),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lets maps that are keyed by names be asked with the text that the server sends.
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
    fn names_are_bounded_in_bytes_not_in_characters() {
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
