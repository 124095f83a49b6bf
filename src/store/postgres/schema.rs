//! The schema's name, and the statements that contain it.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use thiserror::Error;

use super::DEFAULT_SCHEMA;
use crate::pg::quote::push_identifier;

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
    pub(super) event_ids: Statement,
    pub(super) changed_since: Statement,
    pub(super) trim_streams: Statement,
    pub(super) stream_extents: Statement,
    pub(super) last_seq_before: Statement,
    pub(super) last_migration: Statement,
    pub(super) rebind_after_restore: Statement,
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
        let statement = |sql: String| Statement(sql.into());
        Self {
            // As bytes, because sqlx decodes UUIDs only with another dependency.
            append_record: statement(format!(
                "SELECT r.seq, uuid_send(r.event_id), extract(epoch FROM r.appended_at)::double precision \
                 FROM {s}.append_record($1, $2, $3, $4, $5, $6) AS r"
            )),
            append_records: statement(format!(
                "SELECT u.seq, uuid_send(u.event_id), extract(epoch FROM r.appended_at)::double precision \
                 FROM {s}.append_records($1, $2, $3, $4, $5, $6) AS r, \
                 unnest(r.seqs, r.event_ids) WITH ORDINALITY AS u (seq, event_id, ordinal) ORDER BY u.ordinal"
            )),
            try_append_records: statement(format!(
                "SELECT u.seq, uuid_send(u.event_id), extract(epoch FROM r.appended_at)::double precision \
                 FROM {s}.try_append_records($1, $2, $3) AS r, \
                 unnest(r.seqs, r.event_ids) WITH ORDINALITY AS u (seq, event_id, ordinal) ORDER BY u.ordinal"
            )),
            replay_many: statement(format!(
                "SELECT ordinal, low_water, seq, uuid_send(event_id), extract(epoch FROM appended_at)::double precision, \
                 payload::text FROM {s}.replay_many($1, $2, $3)"
            )),
            high_waters: statement(format!("SELECT {s}.high_waters($1)")),
            event_ids: statement(format!(
                "SELECT uuid_send(u.id) FROM unnest({s}.event_ids($1, $2)) WITH ORDINALITY AS u (id, ordinal) ORDER BY u.ordinal"
            )),
            changed_since: statement(format!(
                "SELECT stream_keys, high_waters, watermark::text, more, complete FROM {s}.changed_since($1::text::jsonb, $2)"
            )),
            // In byte order of the keys, the order in which every transaction locks streams.
            trim_streams: statement(format!(
                "SELECT sum({s}.trim_stream(r.stream_key, r.through, $3, $4))::bigint FROM (SELECT stream_key, through \
                 FROM unnest($1::text[], $2::bigint[]) AS u (stream_key, through) ORDER BY stream_key COLLATE \"C\") AS r"
            )),
            stream_extents: statement(format!(
                "SELECT stream_key, oldest_seq, extract(epoch FROM clock_timestamp() - oldest_appended_at)::double precision, last_seq \
                 FROM {s}.stream_extents($1, $2)"
            )),
            last_seq_before: statement(format!(
                "SELECT {s}.last_seq_before(u.stream_key, clock_timestamp() - make_interval(secs => $2), $3) \
                 FROM unnest($1::text[]) WITH ORDINALITY AS u (stream_key, ordinal) ORDER BY u.ordinal"
            )),
            last_migration: statement(format!("SELECT max(version) FROM {s}.migrations WHERE success")),
            rebind_after_restore: statement(format!("SELECT {s}.rebind_after_restore()")),
            name: name.to_owned(),
        }
    }

    /// Unquoted.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// As a quoted identifier.
    pub(super) fn quoted(&self) -> String {
        quote(&self.name)
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
        assert!(
            schema
                .append_record
                .0
                .ends_with("FROM \"a\"\"; DROP SCHEMA public; --\".append_record($1, $2, $3, $4, $5, $6) AS r")
        );
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
