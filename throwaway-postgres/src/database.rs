//! A database for one test.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::os_user::Account;
use crate::{Error, Server, binaries, sql, url};

/// A fresh, empty database, dropped with its handle.
///
/// If `DATABASE_URL` is set (`postgres://…`, a role that may create databases), it is created on that server. Otherwise it is on
/// a throwaway server that all databases of this process share, started by the first one: creating a database takes about
/// 50 ms, where a server takes several times as long.
///
/// ```
/// use throwaway_postgres::Database;
///
/// # fn main() -> Result<(), throwaway_postgres::Error> {
/// let (one, other) = (Database::fresh()?, Database::fresh()?);
/// one.psql("CREATE TABLE t (id int)")?;
/// assert_eq!(other.psql("SELECT count(*) FROM pg_tables WHERE tablename = 't'")?, "0");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Database {
    name: String,
    on: On,
}

/// The server that a database is on.
#[derive(Debug)]
enum On {
    Ours(&'static Server),
    Given(String),
}

impl On {
    fn find() -> Result<Self, Error> {
        if let Some(url) = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty()) {
            return Ok(Self::Given(url));
        }
        static SHARED: OnceLock<Result<Server, String>> = OnceLock::new();
        // The watchdog ends it with this process: a static is never dropped.
        match SHARED.get_or_init(|| Server::start().map_err(|error| error.to_string())) {
            Ok(server) => Ok(Self::Ours(server)),
            // The first caller's failure is asked for again, for its type.
            Err(reason) => Err(Server::start().err().unwrap_or_else(|| Error::Start {
                reason: reason.clone(),
                log: String::new(),
            })),
        }
    }

    fn url(&self, database: &str) -> Result<String, Error> {
        match self {
            Self::Ours(server) => Ok(server.url_for(database)),
            Self::Given(url) => url::with_database(url, database).ok_or(Error::UnusableUrl),
        }
    }

    /// Runs SQL in a database, or in the one that the given URL names.
    fn psql(&self, database: Option<&str>, statements: &str) -> Result<String, Error> {
        match self {
            Self::Ours(server) => server.psql_in(database.unwrap_or("postgres"), statements),
            Self::Given(url) => {
                let url = database.map_or_else(|| Ok(url.clone()), |database| self.url(database))?;
                sql::psql(&binaries::any_psql()?, Account::find()?, &url, statements)
            }
        }
    }
}

impl Database {
    /// Creates a database.
    ///
    /// # Errors
    ///
    /// As for [`Builder::start`](crate::Builder::start); [`Error::UnusableUrl`] and [`Error::Command`] with a `DATABASE_URL` that
    /// does not work.
    pub fn fresh() -> Result<Self, Error> {
        Self::on(On::find()?)
    }

    /// Creates a database on the server that a URL names (`postgres://…`, a role that may create databases).
    ///
    /// # Errors
    ///
    /// [`Error::UnusableUrl`], [`Error::MissingBinary`] without psql, [`Error::Command`] with what it says.
    ///
    /// ```
    /// use throwaway_postgres::{Database, Server};
    ///
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let server = Server::start()?;
    /// let database = Database::fresh_on(&server.url())?;
    /// assert_eq!(database.psql("SELECT inet_server_port()")?, server.port().to_string());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fresh_on(url: &str) -> Result<Self, Error> {
        Self::on(On::Given(url.to_owned()))
    }

    fn on(on: On) -> Result<Self, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!(
            "throwaway_{:x}_{:x}_{}",
            since_epoch.as_micros(),
            std::process::id(),
            // Relaxed: a number of its own is all that each caller needs.
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        on.url(&name)?;
        on.psql(None, &format!("CREATE DATABASE {name}"))?;
        Ok(Self { name, on })
    }

    /// Where to connect.
    #[must_use]
    pub fn url(&self) -> String {
        // It was looked at when the database was created.
        self.on.url(&self.name).unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs SQL in it; see [`Server::psql`].
    ///
    /// # Errors
    ///
    /// [`Error::Command`] with what psql says.
    pub fn psql(&self, sql: &str) -> Result<String, Error> {
        self.on.psql(Some(&self.name), sql)
    }

    /// The server it is on, which other databases of this process share: look, but do not stop it.
    ///
    /// # Errors
    ///
    /// [`Error::NotOurs`] if `DATABASE_URL` or the caller has named it.
    pub fn server(&self) -> Result<&'static Server, Error> {
        match &self.on {
            On::Ours(server) => Ok(server),
            On::Given(_) => Err(Error::NotOurs),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A server that is gone took its databases along.
        self.on
            .psql(None, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name))
            .ok();
    }
}
