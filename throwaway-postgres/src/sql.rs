//! Runs SQL and changes settings.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::command::run;
use crate::os_user::OsUser;
use crate::{Error, Server};

/// The time that new settings may take to reach new connections.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);

/// SQL and settings.
impl Server {
    /// Runs SQL in the database `postgres` as the superuser, through psql. Returns the rows, with columns separated by `|`.
    ///
    /// Each statement runs in its own transaction. The first error stops the run. psql is killed after five minutes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Command`] with psql's error.
    ///
    /// ```
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let server = throwaway_postgres::Server::start()?;
    /// assert_eq!(server.psql("VALUES (1, 'a'), (2, 'b')")?, "1|a\n2|b");
    /// assert!(server.psql("SELECT 1/0").unwrap_err().to_string().contains("division by zero"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn psql(&self, sql: &str) -> Result<String, Error> {
        self.psql_in("postgres", sql)
    }

    /// Runs SQL in another database; see [`psql`](Self::psql).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Command`] with psql's error.
    pub fn psql_in(&self, database: &str, sql: &str) -> Result<String, Error> {
        psql(&self.binaries.psql()?, self.os_user, &self.url_for(database), sql)
    }

    /// Changes a parameter of the running server (`ALTER SYSTEM`), and returns when new connections use it.
    ///
    /// Open connections use it once they are idle. A parameter that needs a restart changes at the next one.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Command`] if the parameter is unknown or the value is invalid.
    ///
    /// ```
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let server = throwaway_postgres::Server::start()?;
    /// server.set("idle_session_timeout", "5s")?;
    /// assert_eq!(server.psql("SHOW idle_session_timeout")?, "5s");
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&self, name: &str, value: impl ToString) -> Result<(), Error> {
        const LOADED: &str = "SELECT pg_conf_load_time()";
        let before = self.psql(LOADED)?;
        let value = value.to_string().replace('\'', "''");
        let name = name.replace('"', "\"\"");
        self.psql(&format!(
            "ALTER SYSTEM SET \"{name}\" = '{value}'; SELECT pg_reload_conf();"
        ))?;
        let started = Instant::now();
        while self.psql(LOADED)? == before {
            if started.elapsed() > RELOAD_LIMIT {
                return Err(self.timeout("the reload of the configuration", RELOAD_LIMIT));
            }
        }
        Ok(())
    }
}

/// Runs SQL through psql.
pub(crate) fn psql(program: &Path, os_user: OsUser, url: &str, sql: &str) -> Result<String, Error> {
    let mut command = os_user.command(program, Path::new("/"));
    command
        .args([
            "--no-psqlrc",
            "--quiet",
            "--no-align",
            "--tuples-only",
            "--set",
            "ON_ERROR_STOP=1",
            "--dbname",
        ])
        .arg(url);
    let output = run(&mut command, Some(sql.as_bytes()))?;
    Ok(String::from_utf8_lossy(&output).trim_end_matches('\n').to_owned())
}
