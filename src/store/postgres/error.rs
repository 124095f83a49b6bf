//! What the server and the pool say, as the store's errors.

use serde::Deserialize;
use sqlx::postgres::PgDatabaseError;

use super::schema::Schema;
use crate::store::StoreError;

/// SQLSTATEs of `migrations/0002_append.sql`.
const WRONG_SEQ: &str = "RB001";
const INVALID_STREAM_KEY: &str = "RB002";

/// The DETAIL of [`WRONG_SEQ`].
#[derive(Deserialize)]
struct WrongSeq {
    stream_key: String,
    expected: u64,
    actual: i64,
}

/// What the store was doing: the same SQLSTATE means different things.
#[derive(Clone, Copy)]
pub(super) enum Doing<'a> {
    Reading,
    /// Writing events of this stream, among others.
    Appending(&'a str),
}

pub(super) fn store_error(error: sqlx::Error, schema: &Schema, doing: Doing<'_>) -> StoreError {
    match &error {
        sqlx::Error::Database(database) => {
            let database = database.downcast_ref::<PgDatabaseError>();
            from_server(database, schema, doing).unwrap_or_else(|| StoreError::other(error))
        }
        sqlx::Error::PoolTimedOut => StoreError::Unavailable {
            reason:
                "no connection within the pool's time limit: the server takes none, or all of the pool's are in use"
                    .to_owned(),
        },
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_) => StoreError::Unavailable {
            reason: error.to_string(),
        },
        _ => StoreError::other(error),
    }
}

fn from_server(error: &PgDatabaseError, schema: &Schema, doing: Doing<'_>) -> Option<StoreError> {
    let not_migrated = || StoreError::NotMigrated {
        schema: schema.name().to_owned(),
        reason: error.message().to_owned(),
    };
    Some(match error.code() {
        WRONG_SEQ => {
            let wrong: WrongSeq = serde_json::from_str(error.detail()?).ok()?;
            StoreError::SeqConflict {
                stream_key: wrong.stream_key,
                expected: wrong.expected,
                // Numbers beyond what the server counts to arrive as -1; who sent one puts it in again.
                actual: u64::try_from(wrong.actual).unwrap_or(u64::MAX),
            }
        }
        // The keys were looked at before they were sent, so the server counts other bytes: its encoding is not UTF-8.
        INVALID_STREAM_KEY => StoreError::other(error.message().to_owned()),
        "55P03" => StoreError::LockTimeout,
        "40P01" => StoreError::Deadlock,
        // A duplicate number is one that was taken after the transaction's snapshot.
        "40001" => StoreError::Serialization,
        "23505" if error.table() == Some("events") => StoreError::Serialization,
        "25006" => StoreError::ReadOnly,
        // No such table, schema, function, column.
        "42P01" | "3F000" | "42883" | "42703" => not_migrated(),
        // Not in the server's character set; no such character in jsonb; not JSON; a number or a text too large, too deep.
        "22P05" | "22021" | "22P02" | "22003" | "54000" | "54001" => match doing {
            Doing::Appending(stream_key) => StoreError::Encode {
                stream_key: stream_key.to_owned(),
                reason: error.message().to_owned(),
            },
            Doing::Reading => return None,
        },
        // Connection exceptions, too many connections, shutdown, crash, start-up, idle session closed.
        code if code.starts_with("08") || code.starts_with("57P") || code == "53300" => StoreError::Unavailable {
            reason: error.message().to_owned(),
        },
        _ => return None,
    })
}
