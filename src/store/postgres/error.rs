//! Maps errors of the server and the pool to [`StoreError`].

use std::io::ErrorKind;

use serde::Deserialize;
use sqlx::postgres::PgDatabaseError;

use super::schema::Schema;
use crate::pg::login::LoginRefused;
use crate::pg::warm_pool::NoRuntime;
use crate::store::StoreError;

/// SQLSTATEs that `migrations/0002_append.sql` raises.
const SEQ_CONFLICT: &str = "RB001";
const INVALID_STREAM_KEY: &str = "RB002";
/// The DETAIL is the stream key.
const STREAM_FULL: &str = "RB005";
/// The DETAIL is the stream key.
const TOO_LARGE: &str = "RB006";

/// The SQLSTATE that `migrations/0003_read.sql` raises. The DETAIL is [`STANDBY`] or `other`.
const WRONG_SERVER: &str = "RB003";
const STANDBY: &str = "standby";

/// The SQLSTATE that the migrations and `installation()` raise.
pub(super) const UNSAFE_SCHEMA: &str = "RB004";

/// The server's lock_not_available.
const LOCK_TIMEOUT: &str = "55P03";

/// The DETAIL of [`SEQ_CONFLICT`].
#[derive(Deserialize)]
struct SeqConflictDetail {
    stream_key: String,
    expected: u64,
    actual: i64,
}

/// The operation that failed, on which the meaning of some SQLSTATEs depends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation<'a> {
    Read,
    /// A read of events, which may take less if fewer are asked for.
    ReadEvents,
    /// An append to this stream, and perhaps to others.
    Append(&'a str),
}

/// Why a statement may succeed if it is repeated, here or on another connection. It has written nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server is a standby.
    Standby,
    /// The server is not the one that the bus listens on.
    OtherServer,
    /// The server is a standby, or a setting makes transactions read-only.
    ReadOnly,
    /// The server is a standby, on which no transaction begins as read-write, or it does not support something else.
    NotSupported,
    /// The transaction could not be serialized with others.
    Serialization,
}

pub(super) fn refusal(error: &sqlx::Error) -> Option<Refusal> {
    let database = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    match database.code() {
        WRONG_SERVER if database.detail() == Some(STANDBY) => Some(Refusal::Standby),
        WRONG_SERVER => Some(Refusal::OtherServer),
        "25006" => Some(Refusal::ReadOnly),
        "0A000" => Some(Refusal::NotSupported),
        "40001" => Some(Refusal::Serialization),
        "23505" if database.table() == Some("events") => Some(Refusal::Serialization),
        _ => None,
    }
}

/// Whether the server gave up waiting for a lock.
pub(super) fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).as_deref() == Some(LOCK_TIMEOUT)
}

pub(super) fn store_error(error: sqlx::Error, schema: &Schema, operation: Operation<'_>) -> StoreError {
    match &error {
        sqlx::Error::Database(database) => {
            let database = database.downcast_ref::<PgDatabaseError>();
            from_server(database, schema, operation).unwrap_or_else(|| StoreError::other(error))
        }
        sqlx::Error::Configuration(cause) if let Some(refused) = cause.downcast_ref::<LoginRefused>() => {
            StoreError::LoginRefused {
                reason: refused.to_string(),
            }
        }
        // The answer may be too large for the time, as may be what the server has to do for it.
        sqlx::Error::Io(cause) if operation == Operation::ReadEvents && cause.kind() == ErrorKind::TimedOut => {
            StoreError::Cancelled {
                reason: cause.to_string(),
            }
        }
        sqlx::Error::PoolTimedOut => StoreError::Unavailable {
            reason: "no connection became available within the pool's acquire timeout: the server refuses connections, or all \
                     connections of the pool are in use"
                .to_owned(),
        },
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_) => StoreError::Unavailable {
            reason: error.to_string(),
        },
        sqlx::Error::Configuration(reason) if reason.is::<NoRuntime>() => StoreError::NoRuntime,
        _ => StoreError::other(error),
    }
}

fn from_server(error: &PgDatabaseError, schema: &Schema, operation: Operation<'_>) -> Option<StoreError> {
    let not_migrated = || StoreError::NotMigrated {
        schema: schema.name().to_owned(),
        reason: error.message().to_owned(),
    };
    Some(match error.code() {
        SEQ_CONFLICT => {
            let conflict: SeqConflictDetail = serde_json::from_str(error.detail()?).ok()?;
            StoreError::SeqConflict {
                stream_key: conflict.stream_key,
                expected: conflict.expected,
                // -1 stands for a number beyond the server's range; see `restore_actual_seq`.
                actual: u64::try_from(conflict.actual).unwrap_or(u64::MAX),
            }
        }
        // Keys are checked before they are sent, so the server's encoding, and with it the key's length in bytes, is not UTF-8.
        INVALID_STREAM_KEY => StoreError::other(error.message().to_owned()),
        STREAM_FULL => StoreError::StreamFull {
            stream_key: error.detail()?.to_owned(),
        },
        TOO_LARGE => StoreError::Encode {
            stream_key: error.detail()?.to_owned(),
            reason: error.message().to_owned(),
        },
        UNSAFE_SCHEMA => StoreError::UnsafeSchema {
            schema: schema.name().to_owned(),
            reason: [Some(error.message()), error.hint()]
                .map(Option::unwrap_or_default)
                .join(". "),
        },
        LOCK_TIMEOUT => StoreError::LockTimeout,
        "40P01" => StoreError::Deadlock,
        // A duplicate number was assigned after the transaction's snapshot.
        "40001" => StoreError::Serialization,
        "23505" if error.table() == Some("events") => StoreError::Serialization,
        "25006" => StoreError::ReadOnly,
        "42501" => StoreError::Forbidden {
            schema: schema.name().to_owned(),
            reason: error.message().to_owned(),
        },
        WRONG_SERVER if error.detail() == Some(STANDBY) => StoreError::ReadOnly,
        WRONG_SERVER => StoreError::Unavailable {
            reason: error.message().to_owned(),
        },
        // Undefined table, schema, function, column.
        "42P01" | "3F000" | "42883" | "42703" => not_migrated(),
        // Transaction timeout; the limits for disk space, memory and temporary files; text too large.
        "25P04" | "53100" | "53200" | "53400" | "54000" if operation == Operation::ReadEvents => {
            StoreError::Cancelled {
                reason: error.message().to_owned(),
            }
        }
        // Character not in the server's encoding; character or syntax that jsonb refuses; number out of range; value too large or
        // nested too deeply.
        "22P05" | "22021" | "22P02" | "22003" | "54000" | "54001" => match operation {
            Operation::Append(stream_key) => StoreError::Encode {
                stream_key: stream_key.to_owned(),
                reason: error.message().to_owned(),
            },
            Operation::Read | Operation::ReadEvents => return None,
        },
        "57014" => StoreError::Cancelled {
            reason: error.message().to_owned(),
        },
        // Transaction timeout, which ends the connection; connection exceptions; disk full, out of memory, too many connections;
        // shutdown, crash, startup, idle session timeout.
        code if code == "25P04" || ["08", "53", "57P"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Unavailable {
                reason: error.message().to_owned(),
            }
        }
        _ => return None,
    })
}
