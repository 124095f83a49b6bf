//! The schema's name, and the statements that carry it.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};
use thiserror::Error;

use super::DEFAULT_SCHEMA;

/// The longest identifier that Postgres keeps whole.
const MAX_IDENTIFIER_BYTES: usize = 63;

/// Why a text cannot name the store's schema.
///
/// ```
/// use doorbell::bus::FleetEvent;
/// use doorbell::store::{InvalidSchemaName, PostgresStore};
///
/// let refused = PostgresStore::<FleetEvent>::builder().schema("").unwrap_err();
/// assert_eq!(refused, InvalidSchemaName::Empty);
/// assert!(PostgresStore::<FleetEvent>::builder().schema("events of \"ours\"").is_ok());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum InvalidSchemaName {
    /// The name has no character.
    #[error("a schema name has at least one character")]
    Empty,
    /// Postgres would cut the name, silently.
    #[error("the schema name has {bytes} bytes, at most {MAX_IDENTIFIER_BYTES} are possible")]
    TooLong {
        /// The name's length.
        bytes: usize,
    },
    /// Postgres cannot store NUL.
    #[error("the schema name contains NUL, which no name can")]
    Nul,
    /// Names that begin with `pg_` are the system's own, and `$user` means the session's role wherever schemas are looked up.
    #[error("\"$user\" and schema names that begin with \"pg_\" are reserved")]
    Reserved,
}

/// A schema name that is fit for SQL, and all statements of the store with that name in them.
///
/// The statements are few and made once, so that each is prepared once on a connection.
#[derive(Debug)]
pub(super) struct Schema {
    name: String,
    pub(super) append: Statement,
    pub(super) append_many: Statement,
    pub(super) try_append_records: Statement,
    pub(super) replay: Statement,
    pub(super) high_waters: Statement,
    pub(super) event_ids: Statement,
    pub(super) changed_since: Statement,
    pub(super) trim_streams: Statement,
    pub(super) stream_extents: Statement,
    pub(super) last_seq_before: Statement,
    pub(super) migrated_to: Statement,
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
        Ok(Self::quoting(name))
    }

    /// The schema of those who choose none.
    pub(super) fn default_name() -> Self {
        Self::quoting(DEFAULT_SCHEMA)
    }

    fn quoting(name: &str) -> Self {
        let s = quote(name);
        let statement = |sql: String| Statement(sql.into());
        Self {
            // sqlx reads bytes without a crate for UUIDs.
            append: statement(format!(
                "SELECT r.seq, uuid_send(r.event_id), extract(epoch FROM r.appended_at)::double precision \
                 FROM {s}.append_record($1, $2, $3, $4, $5, $6) AS r"
            )),
            append_many: statement(format!(
                "SELECT u.seq, uuid_send(u.event_id), extract(epoch FROM r.appended_at)::double precision \
                 FROM {s}.append_records($1, $2, $3, $4, $5, $6) AS r, \
                 unnest(r.seqs, r.event_ids) WITH ORDINALITY AS u (seq, event_id, ordinal) ORDER BY u.ordinal"
            )),
            try_append_records: statement(format!(
                "SELECT u.seq, uuid_send(u.event_id), extract(epoch FROM r.appended_at)::double precision \
                 FROM {s}.try_append_records($1, $2, $3) AS r, \
                 unnest(r.seqs, r.event_ids) WITH ORDINALITY AS u (seq, event_id, ordinal) ORDER BY u.ordinal"
            )),
            replay: statement(format!(
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
            // One after another in the order of the keys, as every transaction locks streams.
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
            migrated_to: statement(format!("SELECT max(version) FROM {s}.migrations WHERE success")),
            rebind_after_restore: statement(format!("SELECT {s}.rebind_after_restore()")),
            name: name.to_owned(),
        }
    }

    /// As it was given, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// As SQL writes it.
    pub(super) fn quoted(&self) -> String {
        quote(&self.name)
    }
}

fn quote(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
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
                .append
                .0
                .ends_with("FROM \"a\"\"; DROP SCHEMA public; --\".append_record($1, $2, $3, $4, $5, $6) AS r")
        );
    }

    #[test]
    fn names_that_postgres_would_change_are_refused() {
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
