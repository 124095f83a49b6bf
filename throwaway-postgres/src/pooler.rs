//! A connection pooler in front of a server.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::os_user::OsUser;
use crate::port::Port;
use crate::shared_dir::SharedDir;
use crate::watchdog::WatchedDir;
use crate::{Error, Server, config, template, url};

/// The time that pgbouncer may take to start.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A pgbouncer process, which shares a few connections to the server among its clients. Dropping it stops it.
///
/// ```
/// use throwaway_postgres::{Pooler, Server};
///
/// # fn main() -> Result<(), throwaway_postgres::Error> {
/// let server = Server::start()?;
/// let pooler = Pooler::transaction_mode(&server)?;
/// assert_ne!(pooler.url(), server.url());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pooler {
    process: Child,
    port: Port,
    // Dropped last: pgbouncer must end before its directory is removed.
    dir: WatchedDir,
}

impl Pooler {
    /// Starts a pooler that assigns a connection for one transaction at a time. Session state, such as a `LISTEN`, is lost.
    ///
    /// # Errors
    ///
    /// Returns [`Error::MissingPooler`] without pgbouncer, and [`Error::Start`] if it does not start.
    pub fn transaction_mode(server: &Server) -> Result<Self, Error> {
        Self::start(server, "transaction")
    }

    /// Starts a pooler that assigns a connection for as long as the client is connected.
    ///
    /// # Errors
    ///
    /// Returns [`Error::MissingPooler`] without pgbouncer, and [`Error::Start`] if it does not start.
    pub fn session_mode(server: &Server) -> Result<Self, Error> {
        Self::start(server, "session")
    }

    fn start(server: &Server, mode: &str) -> Result<Self, Error> {
        let program = find()?;
        let os_user = OsUser::find()?;
        let shared_dir = SharedDir::open(os_user)?;
        let dir = WatchedDir::create(os_user)?;
        let port = Port::reserve(&shared_dir)?;
        let password = server.password().map_or_else(String::new, |password| {
            format!(" password='{}'", password.replace('\'', "''"))
        });
        // Clients need no password; the connections to the server use the server's.
        let text = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={} user={}{password}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = {mode}\n\
             default_pool_size = 10\n\
             max_client_conn = 1000\n",
            server.port(),
            template::USER,
            port.number,
        );
        let file = dir.path().join("pgbouncer.ini");
        config::put(&file, &text, os_user)?;
        let log_path = dir.path().join("log");
        let log = fs::File::create(&log_path).map_err(Error::io(format!("create {log_path:?}")))?;
        let process = os_user
            .command(program, dir.path())
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(Error::io("start pgbouncer"))?;
        let mut pooler = Self { process, port, dir };
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, pooler.port.number)).is_err() {
            let ended = pooler.process.try_wait().map_err(Error::io("wait for pgbouncer"))?;
            let reason = match ended {
                Some(status) => format!("pgbouncer exited ({status})"),
                None if started.elapsed() > START_LIMIT => {
                    format!("pgbouncer does not accept connections after {START_LIMIT:?}")
                }
                None => {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                }
            };
            return Err(Error::Start {
                reason,
                log: pooler.log(),
            });
        }
        Ok(pooler)
    }

    /// Returns the URL of the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    /// Returns the URL of a database.
    #[must_use]
    pub fn url_for(&self, database: &str) -> String {
        url::of(self.port.number, None, database)
    }

    /// Returns the whole log.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.dir.path().join("log")).unwrap_or_default()).into_owned()
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn find() -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|directory| directory.join("pgbouncer"))
        .find(|program| program.is_file())
        .ok_or(Error::MissingPooler)
}
