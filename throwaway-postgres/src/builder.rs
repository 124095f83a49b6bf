//! How a server is to be.

use std::path::PathBuf;

use crate::{Error, Server};

/// Settings of a server to be started; [`Server::builder`] makes one.
///
/// ```
/// use throwaway_postgres::Server;
///
/// # fn main() -> Result<(), throwaway_postgres::Error> {
/// let server = Server::builder().setting("max_connections", 20).password("it's: a secret").start()?;
/// assert_eq!(server.psql("SHOW max_connections")?, "20");
/// assert!(server.url().contains(":it%27s%3A%20a%20secret@"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) encoding: Option<String>,
    pub(crate) locale: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) tls_only: bool,
    pub(crate) durable: bool,
    pub(crate) binaries: Option<PathBuf>,
}

/// A server's certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Builder {
    /// Sets a parameter of `postgresql.conf`. The last value of a name counts; [`Server::set`] can change it later.
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// The encoding of the databases, `UTF8` unless said otherwise; with another one the locale is `C` unless said otherwise.
    ///
    /// ```
    /// use throwaway_postgres::Server;
    ///
    /// # fn main() -> Result<(), throwaway_postgres::Error> {
    /// let server = Server::builder().encoding("LATIN1").start()?;
    /// assert_eq!(server.psql("SHOW server_encoding")?, "LATIN1");
    /// # Ok(())
    /// # }
    /// ```
    pub fn encoding(mut self, encoding: impl Into<String>) -> Self {
        self.encoding = Some(encoding.into());
        self
    }

    /// The locale of the databases, `C.UTF-8` unless said otherwise. The system must have it.
    pub fn locale(mut self, locale: impl Into<String>) -> Self {
        self.locale = Some(locale.into());
        self
    }

    /// Demands this password of the user `postgres`, by SCRAM-SHA-256. Without, everybody on this machine is trusted.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Offers TLS with this certificate chain and private key, both in PEM.
    pub fn tls(mut self, chain: impl Into<String>, key: impl Into<String>) -> Self {
        self.certificate = Some(Certificate {
            chain: chain.into(),
            key: key.into(),
        });
        self
    }

    /// Refuses connections over TCP without TLS.
    pub fn tls_only(mut self) -> Self {
        self.tls_only = true;
        self
    }

    /// Flushes every commit to the disk, as a server in production does. Otherwise `fsync` is off, which is faster, and loses
    /// nothing when processes are killed, only when the machine stops.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Takes the programs from this directory instead of looking for them.
    pub fn binaries(mut self, directory: impl Into<PathBuf>) -> Self {
        self.binaries = Some(directory.into());
        self
    }

    /// Starts the server; returns when it takes connections, typically after 0.2 to 0.5 s. The first server of a kind on a
    /// machine takes 1 to 2 s more.
    ///
    /// # Errors
    ///
    /// [`Error::MissingBinary`] without an installation, [`Error::Start`] with the server's log if it does not come up, for
    /// example because of a setting it does not know.
    pub fn start(self) -> Result<Server, Error> {
        Server::from_builder(self)
    }
}
