//! Settings of a server.

use std::path::PathBuf;

use crate::{Error, Server};

/// Configures and starts a [`Server`]. Created by [`Server::builder`].
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
    /// Sets a parameter of `postgresql.conf`. The last value for a name takes effect; [`Server::set`] can change it later.
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// Sets the encoding of the databases. Default: `UTF8`. With any other encoding, the default locale is `C`.
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

    /// Sets the locale of the databases, which the system must have. Default: `C.UTF-8`.
    pub fn locale(mut self, locale: impl Into<String>) -> Self {
        self.locale = Some(locale.into());
        self
    }

    /// Requires this password for the user `postgres`, with SCRAM-SHA-256. Default: every local connection is trusted.
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

    /// Flushes every commit to the disk, like a production server. Default: `fsync` is off, which is faster and loses data only
    /// if the machine crashes, not if processes are killed.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Uses the binaries in this directory instead of searching for them.
    pub fn binaries(mut self, directory: impl Into<PathBuf>) -> Self {
        self.binaries = Some(directory.into());
        self
    }

    /// Starts the server, and returns when it accepts connections, typically after 0.2 to 0.5 s. The first server of each kind on a
    /// machine takes 1 to 2 s longer.
    ///
    /// # Errors
    ///
    /// Returns [`Error::MissingBinary`] without an installation, and [`Error::Start`] with the server's log if it does not start,
    /// for example because of an unknown parameter.
    pub fn start(self) -> Result<Server, Error> {
        Server::from_builder(self)
    }
}
