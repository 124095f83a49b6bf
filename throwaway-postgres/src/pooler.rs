//! A connection pooler before a server.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::os_user::Account;
use crate::port::Port;
use crate::shared_dir::Base;
use crate::watchdog::Home;
use crate::{Error, Server, config, template, url};

/// How long pgbouncer may take to listen.
const START_LIMIT: Duration = Duration::from_secs(10);

/// A pgbouncer, which hands clients one of few connections to the server. Dropping it stops it.
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
    // Last: pgbouncer has ended when its directory goes.
    home: Home,
}

impl Pooler {
    /// A pooler that gives clients a connection for one transaction at a time: what lives longer in a session, such as a `LISTEN`,
    /// is lost.
    ///
    /// # Errors
    ///
    /// [`Error::MissingPooler`], or [`Error::Start`] if it does not come up.
    pub fn transaction_mode(server: &Server) -> Result<Self, Error> {
        Self::start(server, "transaction")
    }

    /// A pooler that gives clients a connection for as long as they stay.
    ///
    /// # Errors
    ///
    /// [`Error::MissingPooler`], or [`Error::Start`] if it does not come up.
    pub fn session_mode(server: &Server) -> Result<Self, Error> {
        Self::start(server, "session")
    }

    fn start(server: &Server, mode: &str) -> Result<Self, Error> {
        let program = find()?;
        let account = Account::find()?;
        let base = Base::open(account)?;
        let home = Home::create(account)?;
        let port = Port::reserve(&base)?;
        let password = server.password().map_or_else(String::new, |password| {
            format!(" password='{}'", password.replace('\'', "''"))
        });
        // Any client may come; the connections to the server carry the server's own password.
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
             max_client_conn = 1000\n\
             ignore_startup_parameters = extra_float_digits,options\n",
            server.port(),
            template::USER,
            port.number,
        );
        let file = home.path().join("pgbouncer.ini");
        config::put(&file, &text, account)?;
        let log_path = home.path().join("log");
        let log = fs::File::create(&log_path).map_err(Error::io(format!("create {log_path:?}")))?;
        let process = account
            .command(program, home.path())
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(Error::io("start pgbouncer"))?;
        let mut pooler = Self { process, port, home };
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, pooler.port.number)).is_err() {
            let ended = pooler.process.try_wait().map_err(Error::io("wait for pgbouncer"))?;
            let reason = match ended {
                Some(status) => format!("pgbouncer ended ({status})"),
                None if begun.elapsed() > START_LIMIT => format!("pgbouncer does not listen after {START_LIMIT:?}"),
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

    /// Where to connect, to the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    /// Where to connect, to another database.
    #[must_use]
    pub fn url_for(&self, database: &str) -> String {
        url::of(self.port.number, None, database)
    }

    /// Everything it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.home.path().join("log")).unwrap_or_default()).into_owned()
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
