//! Errors of stores.

use std::sync::Arc;

use thiserror::Error;

use super::InvalidStreamKey;

/// An error from a [`Store`](super::Store). Unless its variant states otherwise, nothing was written.
///
/// ```
/// use doorbell::store::StoreError;
///
/// let conflict = StoreError::SeqConflict { stream_key: "agent-1".to_owned(), expected: 5, actual: 3 };
/// assert!(conflict.to_string().contains("but the next is 5"));
/// assert!(!conflict.is_transient());
/// ```
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The event has a sequence number that is not the next of its stream. Read the stream again and retry with the expected
    /// number, or append with number 0 to let the store assign one.
    #[error(
        "stream {stream_key:?}: the event has sequence number {actual}, but the next is {expected}; nothing was written"
    )]
    SeqConflict {
        /// The stream.
        stream_key: String,
        /// The next sequence number of the stream.
        expected: u64,
        /// The event's sequence number.
        actual: u64,
    },
    /// The stream's last number is 2^62 - 1 or higher, so no event can follow. That takes an event or a low-water mark that was
    /// inserted by hand. Remove it, or use another stream.
    #[error("stream {stream_key:?} has used the highest sequence number, so no event can follow; nothing was written")]
    StreamFull {
        /// The stream.
        stream_key: String,
    },
    /// The stream key is invalid.
    #[error(transparent)]
    InvalidStreamKey(#[from] InvalidStreamKey),
    /// The event cannot be encoded as JSON, or the store cannot hold that JSON.
    #[error("stream {stream_key:?}: the event cannot be encoded: {reason}; nothing was written")]
    Encode {
        /// The stream.
        stream_key: String,
        /// The message of the encoder or the server.
        reason: String,
    },
    /// Another transaction kept the stream, or what a migration changes, locked for longer than the lock timeout. Retry.
    #[error("another transaction held a lock for longer than the lock timeout; nothing was written")]
    LockTimeout,
    /// The server aborted the transaction to resolve a deadlock. Retry the whole transaction.
    #[error("the transaction was aborted to resolve a deadlock; retry it")]
    Deadlock,
    /// The transaction could not be serialized with concurrent ones. Retry the whole transaction.
    #[error("the transaction could not be serialized with concurrent transactions; retry it")]
    Serialization,
    /// The server is a standby, or the transaction is read-only. During a switchover this ends by itself; otherwise connect to the
    /// primary.
    #[error("the server is a standby or the transaction is read-only; nothing was written; connect to the primary")]
    ReadOnly,
    /// The server cancelled the statement, for example after its `statement_timeout`; or a read of events took longer than the response
    /// timeout, or more disk space, memory or time than the server allows. Retry, raise the limit, or read fewer events at once.
    #[error("the statement was cancelled: {reason}; nothing was written")]
    Cancelled {
        /// The message of the server or the store.
        reason: String,
    },
    /// The store's tables are missing or outdated. Run the migrations.
    #[error("the store in schema {schema:?} is not migrated: {reason}; run the migrations")]
    NotMigrated {
        /// The schema.
        schema: String,
        /// What is missing.
        reason: String,
    },
    /// The role lacks a privilege on the store's schema, or row-level security applies to it. Grant the documented rights with
    /// `migrations/grants.sql`; disable row-level security on the tables, or give the role `BYPASSRLS`. See `docs/security.md`.
    #[error(
        "the server does not permit this in schema {schema:?}: {reason}; nothing was written; grant the rights of \
         migrations/grants.sql, and exempt the role from row-level security on the store's tables"
    )]
    Forbidden {
        /// The schema.
        schema: String,
        /// What is not permitted.
        reason: String,
    },
    /// Other roles than the store's owner, its members and superusers own the schema or something in it, or may create objects in it, and
    /// so could run code as each role that uses the store; or the schema was renamed, and its functions use another one. Drop what other
    /// roles have created in the schema and revoke `CREATE` from them, or use another schema. Up to PostgreSQL 14, every role may
    /// create objects in the schema `public`, and upgrades keep that.
    #[error("schema {schema:?} is not safe to use: {reason}")]
    UnsafeSchema {
        /// The schema.
        schema: String,
        /// What belongs to which other role, and what to do.
        reason: String,
    },
    /// The store cannot be reached, its pool has no free connection, or the server lacks a resource, such as disk space. A write
    /// that was in progress may or may not have happened. Retry; if the event has a number, with the same number.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// The message of the connection or the pool.
        reason: String,
    },
    /// The server refuses the login: a wrong password, a role without LOGIN, no such database. Nothing was written. Correct the connection options,
    /// or the role. The store attempts another login at most once per back-off of 2.5 to 5 s, whatever the number of calls; the calls in between
    /// return this error at once.
    #[error("the server refuses the login: {reason}; nothing was written; correct the connection options or the role")]
    LoginRefused {
        /// The server's message.
        reason: String,
    },
    /// The store's code panicked; the panic hook has reported where. A write that was in progress may or may not
    /// have happened. The bus repeats its own calls; fix the store.
    #[error("the store panicked: {message}")]
    Panicked {
        /// The message of the panic.
        message: String,
    },
    /// The method was polled outside a tokio runtime. Nothing was written.
    #[cfg(feature = "postgres")]
    #[error("the store's methods must be polled inside a tokio runtime; nothing was written")]
    NoRuntime,
    /// Any other error.
    #[error("the store failed: {0}")]
    Other(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Wraps any other error.
    ///
    /// ```
    /// use doorbell::store::StoreError;
    ///
    /// let error = StoreError::other(std::io::Error::other("disk full"));
    /// assert_eq!(error.to_string(), "the store failed: disk full");
    /// assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "disk full");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(Arc::from(error.into()))
    }

    /// Returns `true` if the same call may succeed later.
    ///
    /// ```
    /// assert!(doorbell::store::StoreError::LockTimeout.is_transient());
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::LockTimeout
                | Self::Deadlock
                | Self::Serialization
                | Self::ReadOnly
                | Self::Cancelled { .. }
                | Self::Unavailable { .. }
        )
    }
}
