//! The PostgreSQL server that the bus is measured on.

use sqlx::postgres::PgConnectOptions;
use throwaway_postgres::{Builder, Database, Server};

use doorbell_perf::bus::candidates::Failure;

/// A server that was started for this process and ends with it, or an existing one.
pub(crate) struct MeasuredServer {
    /// Ends with this.
    _own: Option<Server>,
    url: String,
}

impl MeasuredServer {
    /// The server at `url`, or else a new one.
    pub(crate) fn find(url: Option<&str>, own: Builder) -> Result<Self, Failure> {
        if let Some(url) = url {
            return Ok(Self {
                _own: None,
                url: url.to_owned(),
            });
        }
        let own = own.start()?;
        Ok(Self {
            url: own.url(),
            _own: Some(own),
        })
    }

    /// A new database, dropped with its handle.
    pub(crate) fn database(&self) -> Result<Database, Failure> {
        Ok(Database::fresh_on(&self.url)?)
    }

    pub(crate) fn port(&self) -> Result<u16, Failure> {
        Ok(self.url.parse::<PgConnectOptions>()?.get_port())
    }

    /// How many more connections ordinary users may open.
    pub(crate) fn free_connections(&self, database: &Database) -> Result<usize, Failure> {
        const FREE: &str = "SELECT current_setting('max_connections')::int \
                            - current_setting('superuser_reserved_connections')::int \
                            - (SELECT count(*) FROM pg_stat_activity \
                               WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())";
        Ok(database.psql(FREE)?.parse::<i64>()?.try_into().unwrap_or_default())
    }
}
