//! Where and how to connect: tokio-postgres's settings, and the encryption that they do not hold.

mod error;
mod parse;
mod sqlx;
mod ssl_mode;
mod tls;
mod verify;

use core::fmt;
use core::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::Host;

pub use error::ConfigError;
pub use tls::Tls;

/// What tokio-postgres has when nothing was set: a peer that is gone would be noticed after two hours.
const KEEPALIVE_IDLE_UNSET: Duration = Duration::from_secs(2 * 60 * 60);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Where and how to connect: settings of tokio-postgres, and [`Tls`].
///
/// It is parsed from a connection string, either a URL or `key=value` pairs, with what
/// [`tokio_postgres::Config`] knows and besides:
///
/// | parameter | |
/// |---|---|
/// | `sslmode` | as libpq's: `disable`; `allow` and `prefer` (the default): encrypted if the server can; `require`: encrypted, verified only if a root certificate is given; `verify-ca`: the certificate's chain is verified; `verify-full`: and the name of the host |
/// | `sslrootcert` | a file of certificates to trust, as PEM; or `system`: the roots that Mozilla trusts, which `verify-ca` and `verify-full` use, too, if none is given |
/// | `sslcert`, `sslkey` | files with the client's certificate and key, as PEM |
/// | sqlx's names | `ssl-mode`, `ssl-root-cert`, `ssl-ca`, `ssl-cert`, `ssl-key`, `options[name]`; `statement-cache-capacity` is ignored |
///
/// Settings that are not given and matter to a listener are set when connecting: keepalive after 10 s of silence, 3 times 3 s
/// apart, and a TCP user timeout of 10 s.
///
/// ```
/// use doorbell::listen::ListenConfig;
///
/// let config: ListenConfig = "postgres://app:secret@db.internal/app?sslmode=verify-full".parse()?;
/// assert_eq!(config.postgres.get_dbname(), Some("app"));
/// assert!("postgres://db.internal/app?sslmode=perhaps".parse::<ListenConfig>().is_err());
/// # Ok::<_, doorbell::listen::ListenError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct ListenConfig {
    /// tokio-postgres's settings.
    pub postgres: tokio_postgres::Config,
    /// How to encrypt, when `postgres` says so.
    pub tls: Tls,
}

impl ListenConfig {
    /// Joins the two.
    ///
    /// ```
    /// use doorbell::listen::{ListenConfig, Tls};
    ///
    /// let config = ListenConfig::new(tokio_postgres::Config::new(), Tls::unverified());
    /// ```
    pub fn new(postgres: tokio_postgres::Config, tls: Tls) -> Self {
        Self { postgres, tls }
    }

    /// Connects as a sqlx pool does. What sqlx hands out is translated: its URL has parameters that tokio-postgres does not know.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when a certificate or key cannot be read.
    ///
    /// ```
    /// use doorbell::listen::ListenConfig;
    /// use sqlx::postgres::PgConnectOptions;
    ///
    /// let options = PgConnectOptions::new_without_pgpass().host("::1").username("app").password("p/w?").database("app");
    /// let config = ListenConfig::from_sqlx(&options)?;
    /// assert_eq!(config.postgres.get_password(), Some("p/w?".as_bytes()));
    /// # Ok::<_, doorbell::listen::ListenError>(())
    /// ```
    pub fn from_sqlx(options: &::sqlx::postgres::PgConnectOptions) -> Result<Self, ConfigError> {
        sqlx::translate(options)
    }

    /// What a listener needs and the user has not decided.
    pub(crate) fn with_defaults(mut self, application_name: Option<&str>) -> Self {
        let postgres = &mut self.postgres;
        if let Some(name) = application_name {
            postgres.application_name(name);
        } else if postgres.get_application_name().is_none() {
            postgres.application_name("doorbell listen");
        }
        if postgres.get_keepalives_idle() == KEEPALIVE_IDLE_UNSET {
            postgres.keepalives_idle(KEEPALIVE_IDLE);
        }
        if postgres.get_keepalives_interval().is_none() {
            postgres.keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if postgres.get_keepalives_retries().is_none() {
            postgres.keepalives_retries(KEEPALIVE_RETRIES);
        }
        if postgres.get_tcp_user_timeout().is_none() {
            postgres.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        // Encryption needs a name to go by, even where it is not verified; the address will do.
        if postgres.get_hosts().is_empty() {
            for address in postgres.get_hostaddrs().to_vec() {
                postgres.host(address.to_string());
            }
        }
        // As with libpq, there is no encryption on a Unix socket, whatever the mode.
        if postgres.get_hosts().iter().all(is_socket) {
            postgres.ssl_mode(tokio_postgres::config::SslMode::Disable);
        }
        self
    }
}

fn is_socket(host: &Host) -> bool {
    match host {
        Host::Tcp(_) => false,
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

impl FromStr for ListenConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        parse::parse(text)
    }
}

/// Certificates are not verified: as `sslmode=require` without a root certificate.
impl From<tokio_postgres::Config> for ListenConfig {
    fn from(postgres: tokio_postgres::Config) -> Self {
        Self::new(postgres, Tls::unverified())
    }
}

/// Without the password.
impl fmt::Debug for ListenConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenConfig")
            .field("postgres", &self.postgres)
            .field("tls", &self.tls)
            .finish()
    }
}
