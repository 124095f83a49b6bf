//! The rules for stream keys.

use thiserror::Error;

/// The maximum length of a stream key, in bytes of UTF-8.
pub const MAX_STREAM_KEY_BYTES: usize = 512;

/// Separates the ranges of a notification's payload, so no stream key contains it.
const RANGE_SEPARATOR: char = '\u{1e}';

/// The error returned by [`check_stream_key`].
///
/// ```
/// use doorbell::event::{InvalidStreamKey, check_stream_key};
///
/// assert_eq!(check_stream_key(""), Err(InvalidStreamKey::Empty));
/// assert_eq!(check_stream_key(&"k".repeat(513)), Err(InvalidStreamKey::TooLong { bytes: 513 }));
/// assert_eq!(check_stream_key("a\0b"), Err(InvalidStreamKey::Character { character: '\0', at: 1 }));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InvalidStreamKey {
    /// The key is empty.
    #[error("the stream key is empty")]
    Empty,
    /// The key is longer than [`MAX_STREAM_KEY_BYTES`].
    #[error("the stream key is too long: {bytes} bytes, at most {MAX_STREAM_KEY_BYTES} are allowed")]
    TooLong {
        /// The length of the key.
        bytes: usize,
    },
    /// The key contains NUL, which Postgres cannot store, or U+001E, which separates the ranges of a notification.
    #[error("the stream key contains {character:?} at byte {at}, which is not allowed")]
    Character {
        /// The character.
        character: char,
        /// Its position, in bytes from the start.
        at: usize,
    },
}

/// Checks that `key` can name a stream.
///
/// A key has 1 to [`MAX_STREAM_KEY_BYTES`] bytes, without NUL and U+001E. All other characters are allowed, including colons,
/// quotes, line breaks and emoji.
///
/// # Errors
///
/// Returns [`InvalidStreamKey`] if the key is not valid.
///
/// ```
/// use doorbell::event::check_stream_key;
///
/// assert!(check_stream_key("repo:doorbell:🔔").is_ok());
/// ```
pub fn check_stream_key(key: &str) -> Result<(), InvalidStreamKey> {
    if key.is_empty() {
        return Err(InvalidStreamKey::Empty);
    }
    if key.len() > MAX_STREAM_KEY_BYTES {
        return Err(InvalidStreamKey::TooLong { bytes: key.len() });
    }
    match key
        .char_indices()
        .find(|&(_, character)| character == '\0' || character == RANGE_SEPARATOR)
    {
        Some((at, character)) => Err(InvalidStreamKey::Character { character, at }),
        None => Ok(()),
    }
}
