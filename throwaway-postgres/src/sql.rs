//! Asking the server.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::command::run;
use crate::os_user::Account;
use crate::{Error, Server};

/// How long a change of settings may take to reach new connections.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);

/// What one may ask it.
impl Server {
    /// Runs SQL as the superuser in the database `postgres`, through psql; gives the rows, columns separated by `|`.
    ///
    /// Each statement is a transaction of its own; the first that fails ends the run.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] with what psql says.
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
    /// [`Error::Command`] with what psql says.
    pub fn psql_in(&self, database: &str, sql: &str) -> Result<String, Error> {
        psql(&self.binaries.psql()?, self.account, &self.url_for(database), sql)
    }

    /// Changes a parameter of the running server (`ALTER SYSTEM`) and returns when new connections have it. Open ones follow
    /// when they are idle next. A parameter that needs a restart is changed by the next one.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] if the server does not know the parameter or refuses the value.
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
        let begun = Instant::now();
        while self.psql(LOADED)? == before {
            if begun.elapsed() > RELOAD_LIMIT {
                return Err(self.timeout("the reload of the configuration", RELOAD_LIMIT));
            }
        }
        Ok(())
    }
}

/// Runs SQL through psql.
pub(crate) fn psql(program: &Path, account: Account, url: &str, sql: &str) -> Result<String, Error> {
    let mut command = account.command(program, Path::new("/"));
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
