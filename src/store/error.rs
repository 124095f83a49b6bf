//! Why a store did not do it.

use std::sync::Arc;

use thiserror::Error;

use super::InvalidStreamKey;

/// Why a store did not do what it was asked to. Unless a variant says otherwise nothing was written, and what was there before
/// is untouched.
///
/// ```
/// use doorbell::store::StoreError;
///
/// let conflict = StoreError::SeqConflict { stream_key: "agent-1".to_owned(), expected: 5, actual: 3 };
/// assert!(conflict.to_string().contains("the next is 5"));
/// assert!(!conflict.is_transient());
/// ```
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A stamped event is not the next of its stream. Read the stream again, decide again, and append with the number that is
    /// expected now; or append with number 0 and let the store number it.
    #[error("stream {stream_key:?}: the event carries number {actual}, the next is {expected}; nothing was written")]
    SeqConflict {
        /// The stream.
        stream_key: String,
        /// The number that the next event gets.
        expected: u64,
        /// The number that the event carries.
        actual: u64,
    },
    /// The text cannot name a stream.
    #[error(transparent)]
    InvalidStreamKey(#[from] InvalidStreamKey),
    /// The event cannot be written as JSON, or not as JSON that the store can hold.
    #[error("stream {stream_key:?}: the event cannot be encoded, nothing was written: {reason}")]
    Encode {
        /// The stream.
        stream_key: String,
        /// What the encoder or the server says.
        reason: String,
    },
    /// Another transaction held the stream for longer than the lock timeout. Try again.
    #[error("another transaction has held the stream for longer than the lock timeout; nothing was written, try again")]
    LockTimeout,
    /// The transaction was chosen to resolve a deadlock. Run it again as a whole.
    #[error("the transaction was cancelled to resolve a deadlock; run it again")]
    Deadlock,
    /// The transaction could not be serialised with others. Run it again as a whole.
    #[error("the transaction could not be serialised with others; run it again")]
    Serialization,
    /// The server takes no writes: a standby, or a read-only transaction. Connect to the primary.
    #[error("the server takes no writes (a standby, or a read-only transaction); connect to the primary")]
    ReadOnly,
    /// The store's tables are missing or too old. Run the migrations.
    #[error("the store in schema {schema:?} is not ready: {reason}; run the migrations")]
    NotMigrated {
        /// The schema.
        schema: String,
        /// What is missing.
        reason: String,
    },
    /// The store cannot be reached, or its pool has no free connection. Whether a write that was under way has happened is not
    /// known; try again, a stamped event with the same number.
    #[error("the store cannot be reached: {reason}")]
    Unavailable {
        /// What the connection or the pool says.
        reason: String,
    },
    /// Something else.
    #[error("the store failed: {0}")]
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Any other error, kept as the source.
    ///
    /// ```
    /// use doorbell::store::StoreError;
    ///
    /// let error = StoreError::other(std::io::Error::other("disk full"));
    /// assert_eq!(error.to_string(), "the store failed: disk full");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(Arc::from(error.into()))
    }

    /// Whether the same call may succeed later, without a change on the caller's side.
    ///
    /// ```
    /// assert!(doorbell::store::StoreError::LockTimeout.is_transient());
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::LockTimeout | Self::Deadlock | Self::Serialization | Self::Unavailable { .. }
        )
    }
}
