//! What may name a stream.

use thiserror::Error;

/// The longest stream key, in bytes of UTF-8.
pub const MAX_STREAM_KEY_BYTES: usize = 512;

/// A character that no stream key contains: it parts the pointers of a doorbell's payload.
const POINTER_SEPARATOR: char = '\u{1e}';

/// Why a text cannot name a stream.
///
/// ```
/// use doorbell::store::{InvalidStreamKey, check_stream_key};
///
/// assert_eq!(check_stream_key(""), Err(InvalidStreamKey::Empty));
/// assert_eq!(check_stream_key(&"k".repeat(513)), Err(InvalidStreamKey::TooLong { bytes: 513 }));
/// assert_eq!(check_stream_key("a\0b"), Err(InvalidStreamKey::Character { character: '\0', at: 1 }));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InvalidStreamKey {
    /// The key has no character.
    #[error("a stream key has at least one character")]
    Empty,
    /// The key is longer than [`MAX_STREAM_KEY_BYTES`].
    #[error("the stream key has {bytes} bytes, at most {MAX_STREAM_KEY_BYTES} are possible")]
    TooLong {
        /// The key's length.
        bytes: usize,
    },
    /// The key contains NUL, which Postgres cannot store, or U+001E, which parts the pointers of a doorbell.
    #[error("the stream key contains {character:?} at byte {at}, which no key can")]
    Character {
        /// The character.
        character: char,
        /// Where it is, in bytes from the start.
        at: usize,
    },
}

/// Whether `key` can name a stream: 1 to [`MAX_STREAM_KEY_BYTES`] bytes, no NUL, no U+001E. Everything else is welcome, colons,
/// quotes, line breaks and emoji among them.
///
/// # Errors
///
/// Says what is wrong with the key.
///
/// ```
/// use doorbell::store::check_stream_key;
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
        .find(|&(_, character)| character == '\0' || character == POINTER_SEPARATOR)
    {
        Some((at, character)) => Err(InvalidStreamKey::Character { character, at }),
        None => Ok(()),
    }
}
