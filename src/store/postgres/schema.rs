//! The schema's name, and the statements that contain it.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use thiserror::Error;

use super::DEFAULT_SCHEMA;
use crate::pg::quote::{push_identifier, push_literal};

/// The longest identifier that Postgres does not truncate.
const MAX_IDENTIFIER_BYTES: usize = 63;

/// Why a string is not a valid name for the store's schema.
///
/// ```
/// use doorbell::bus::FleetEvent;
/// use doorbell::store::{InvalidSchemaName, PostgresStore};
///
/// let error = PostgresStore::<FleetEvent>::builder().schema("").unwrap_err();
/// assert_eq!(error, InvalidSchemaName::Empty);
/// assert!(PostgresStore::<FleetEvent>::builder().schema("events of \"ours\"").is_ok());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InvalidSchemaName {
    /// The name is empty.
    #[error("the schema name is empty")]
    Empty,
    /// The name is longer than 63 bytes. Postgres would silently truncate it.
    #[error("the schema name is {bytes} bytes long; the maximum is {MAX_IDENTIFIER_BYTES}")]
    TooLong {
        /// The length of the name.
        bytes: usize,
    },
    /// The name contains NUL, which Postgres cannot store.
    #[error("the schema name contains NUL")]
    Nul,
    /// The name starts with `pg_`, which is reserved for system schemas, or is `$user`, which stands for the session's role in a
    /// search path.
    #[error("\"$user\" and schema names that start with \"pg_\" are reserved")]
    Reserved,
}

/// A valid schema name, and all statements of the store with that name in them.
///
/// The statements are built once, so that each is prepared once per connection.
#[derive(Debug)]
pub(super) struct Schema {
    name: String,
    pub(super) append_record: Statement,
    pub(super) append_records: Statement,
    pub(super) try_append_records: Statement,
    pub(super) replay_many: Statement,
    pub(super) high_waters: Statement,
    pub(super) heads: Statement,
    pub(super) first_recent: Statement,
    pub(super) event_ids: Statement,
    pub(super) changed_since: Statement,
    pub(super) trim_streams: Statement,
    pub(super) stream_extents: Statement,
    pub(super) last_seqs_before: Statement,
}

/// SQL whose only variable part is a quoted identifier.
#[derive(Clone, Debug)]
pub(super) struct Statement(Arc<str>);

impl SqlSafeStr for &Statement {
    fn into_sql_str(self) -> SqlStr {
        AssertSqlSafe(Arc::clone(&self.0)).into_sql_str()
    }
}

impl Schema {
    pub(super) fn new(name: &str) -> Result<Self, InvalidSchemaName> {
        if name.is_empty() {
            return Err(InvalidSchemaName::Empty);
        }
        if name.len() > MAX_IDENTIFIER_BYTES {
            return Err(InvalidSchemaName::TooLong { bytes: name.len() });
        }
        if name.contains('\0') {
            return Err(InvalidSchemaName::Nul);
        }
        if name.starts_with("pg_") || name == "$user" {
            return Err(InvalidSchemaName::Reserved);
        }
        Ok(Self::with_valid_name(name))
    }

    /// [`DEFAULT_SCHEMA`].
    pub(super) fn default_name() -> Self {
        Self::with_valid_name(DEFAULT_SCHEMA)
    }

    fn with_valid_name(name: &str) -> Self {
        let s = quote(name);
        // Nothing but calls of the store's functions: the server would look up the name of anything else, an operator or a cast
        // included, along the session's search path, where other roles may have put their own.
        // `guarded(n, m)` is parameter n, provided that the server is the expected one, which is parameter m.
        let guarded = |argument: u32, server: u32| format!("{s}.require_server(${server}, ${argument})");
        let call = |call: &str| Statement(format!("SELECT {s}.{call}").into());
        let columns = |columns: &str, call: &str| Statement(format!("SELECT {columns} FROM {s}.{call}").into());
        Self {
            append_record: columns(
                "seq, event_id, previous_id, appended_at",
                &format!("append_record({}, $2, $3, $4, $5, $6)", guarded(1, 7)),
            ),
            append_records: columns(
                "seqs, event_ids, previous_ids, appended_at",
                &format!("append_records({}, $2, $3, $4, $5, $6)", guarded(1, 7)),
            ),
            try_append_records: columns(
                "seqs, event_ids, previous_ids, appended_at",
                &format!("try_append_records({}, $2, $3, $4)", guarded(1, 5)),
            ),
            replay_many: columns(
                "ordinal, low_water, low_water_id, seq, event_id, previous_id, appended_at, payload, more",
                &format!("replay_many({}, $2, $3, $4)", guarded(1, 5)),
            ),
            high_waters: call(&format!("high_waters({})", guarded(1, 2))),
            heads: columns(
                "seqs, event_ids, watermark, is_standby",
                &format!("heads({})", guarded(1, 2)),
            ),
            first_recent: call(&format!("first_recent({}, $2, $3, $4, $5)", guarded(1, 6))),
            event_ids: call(&format!("event_ids({}, $2)", guarded(1, 3))),
            changed_since: columns(
                "stream_keys, high_waters, event_ids, watermark, more, complete",
                &format!("changed_since($1, {})", guarded(2, 3)),
            ),
            trim_streams: columns(
                "removed, locked_keys",
                &format!("trim_streams({}, $2, $3, $4)", guarded(1, 5)),
            ),
            stream_extents: columns(
                "stream_key, oldest_seq, oldest_age, last_seq",
                &format!("stream_extents({}, $2)", guarded(1, 3)),
            ),
            last_seqs_before: call(&format!("last_seqs_before({}, $2, $3)", guarded(1, 4))),
            name: name.to_owned(),
        }
    }

    #[cfg(test)]
    fn statements(&self) -> [&Statement; 12] {
        let Self {
            name: _,
            append_record,
            append_records,
            try_append_records,
            replay_many,
            high_waters,
            heads,
            first_recent,
            event_ids,
            changed_since,
            trim_streams,
            stream_extents,
            last_seqs_before,
        } = self;
        [
            append_record,
            append_records,
            try_append_records,
            replay_many,
            high_waters,
            heads,
            first_recent,
            event_ids,
            changed_since,
            trim_streams,
            stream_extents,
            last_seqs_before,
        ]
    }

    /// Unquoted.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// As a quoted identifier.
    pub(super) fn quoted(&self) -> String {
        quote(&self.name)
    }

    /// As a string literal.
    pub(super) fn literal(&self) -> String {
        let mut literal = String::new();
        push_literal(&mut literal, &self.name);
        literal
    }
}

fn quote(name: &str) -> String {
    let mut quoted = String::new();
    push_identifier(&mut quoted, name);
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        let schema = Schema::new("a\"; DROP SCHEMA public; --").unwrap();
        assert_eq!(schema.quoted(), "\"a\"\"; DROP SCHEMA public; --\"");
        assert!(schema.append_record.0.contains(
            " FROM \"a\"\"; DROP SCHEMA public; --\".append_record(\"a\"\"; DROP SCHEMA public; --\".require_server("
        ));
    }

    /// P17: an operator, a cast, or a name without a schema would be looked up along the session's search path.
    #[test]
    fn p17_statements_are_function_calls_with_the_schema_written_out() {
        let schema = Schema::default_name();
        for statement in schema.statements() {
            let sql = statement.0.strip_prefix("SELECT ").unwrap();
            let (results, sql_call) = sql.split_once(" FROM ").unwrap_or(("", sql));
            assert!(results.split(", ").all(is_name) && is_call(sql_call), "{sql}");
        }
        assert!(!is_call("\"doorbell\".f($1, g($2))") && !is_call("\"doorbell\".f($1 + $2)"));
    }

    fn is_name(name: &str) -> bool {
        name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    }

    /// Whether this is a call of a function of the store, with parameters and such calls as arguments.
    fn is_call(sql: &str) -> bool {
        let call = sql
            .strip_prefix("\"doorbell\".")
            .and_then(|call| call.strip_suffix(')')?.split_once('('));
        let Some((function, arguments)) = call else {
            return false;
        };
        let mut depth = 0;
        let separated = arguments.split(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0 && c == ','
        });
        is_name(function)
            && separated
                .map(str::trim)
                .all(|argument| argument.is_empty() || is_parameter(argument) || is_call(argument))
    }

    fn is_parameter(sql: &str) -> bool {
        sql.strip_prefix('$').is_some_and(|number| number.parse::<u8>().is_ok())
    }

    #[test]
    fn names_that_postgres_would_alter_are_refused() {
        assert!(Schema::new(&"s".repeat(63)).is_ok());
        assert_eq!(
            Schema::new(&"ä".repeat(32)).unwrap_err(),
            InvalidSchemaName::TooLong { bytes: 64 }
        );
        assert_eq!(Schema::new("a\0").unwrap_err(), InvalidSchemaName::Nul);
        for reserved in ["pg_mine", "$user"] {
            assert_eq!(Schema::new(reserved).unwrap_err(), InvalidSchemaName::Reserved);
        }
    }
}
