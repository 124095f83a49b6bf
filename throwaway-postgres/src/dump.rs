//! Dumps and restores databases.

use std::path::Path;

use crate::command::run;
use crate::{Error, Server};

/// Dumps and restores databases.
impl Server {
    /// Returns a database's schema and data, as SQL from pg_dump.
    ///
    /// # Errors
    ///
    /// Returns [`Error::MissingBinary`] without a pg_dump of this version, and [`Error::Command`] with its error.
    ///
    /// ```
    /// use throwaway_postgres::Server;
    ///
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let server = Server::start()?;
    /// server.psql("CREATE TABLE t AS SELECT 7 AS id")?;
    /// let dump = server.dump("postgres")?;
    /// server.restore("copy", &dump)?;
    /// assert_eq!(server.psql_in("copy", "SELECT id FROM t")?, "7");
    /// # Ok(())
    /// # }
    /// ```
    pub fn dump(&self, database: &str) -> Result<String, Error> {
        let mut command = self.os_user.command(self.binaries.program("pg_dump")?, Path::new("/"));
        let output = run(command.arg("--dbname").arg(self.url_for(database)), None)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Creates a database from a [`dump`](Self::dump) of this server or another.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Command`] with psql's error. The partly restored database stays.
    pub fn restore(&self, new_database: &str, dump: &str) -> Result<(), Error> {
        let name = new_database.replace('"', "\"\"");
        self.psql(&format!("CREATE DATABASE \"{name}\" TEMPLATE template0"))?;
        self.psql_in(new_database, dump)?;
        Ok(())
    }
}
