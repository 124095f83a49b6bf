//! Connection options: those of tokio-postgres, and TLS.

mod connection_string;
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

pub(crate) use connection_string::{ConnectionString, PoolOptions};
pub use error::ConfigError;
#[cfg(any(test, fuzzing))]
pub(crate) use parse::parse_without_files;
pub use tls::Tls;
use tls::is_pem;

/// tokio-postgres's default: a dead peer is detected after two hours.
const KEEPALIVE_IDLE_UNSET: Duration = Duration::from_secs(2 * 60 * 60);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// Connection options: those of tokio-postgres, and [`Tls`].
///
/// They can be parsed from a connection string, which is a URL or `key=value` pairs. It takes the parameters of
/// [`tokio_postgres::Config`] and these:
///
/// | parameter | meaning |
/// |---|---|
/// | `sslmode` | As in libpq. `disable`: no encryption. `allow`, `prefer` (the default): encrypted if the server supports it. `require`: encrypted; the certificate chain is verified only if `sslrootcert` is given. `verify-ca`: the chain is verified. `verify-full`: the chain and the host name are verified. |
/// | `sslrootcert` | A PEM file of trusted root certificates, or `system` for Mozilla's. Default for `verify-ca` and `verify-full`: `system`. |
/// | `sslcert`, `sslkey` | PEM files with the client's certificate and private key. |
/// | `ssl-mode`, `ssl-root-cert`, `ssl-ca`, `ssl-cert`, `ssl-key`, `options[name]`, `statement-cache-capacity` | sqlx's names for the same, and for what only its pools have. |
///
/// Several hosts are tried in their order, or at random with `load_balance_hosts=random`, until one accepts the session and meets
/// `target_session_attrs` (`any`, `read-write` or `read-only`). A host that refuses the login ends the attempt, as in libpq. Each address gets an equal
/// share of the time that is left.
///
/// Options that a connection string does not set come from libpq's environment variables `PGHOST`, `PGHOSTADDR`, `PGPORT`, `PGUSER`,
/// `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`, `PGAPPNAME` and `PGOPTIONS`. Password files are not read.
///
/// [`PostgresStore::connect`](crate::store::PostgresStore::connect) takes the same strings. Its pool ignores what sqlx cannot do: keepalives,
/// `tcp_user_timeout`, `channel_binding` and `sslnegotiation`.
///
/// If they are unset, a listener sets these options: TCP keepalive after 10 s of silence, with 3 probes 3 s apart, and a TCP user
/// timeout of 10 s.
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
    /// The options of tokio-postgres.
    pub postgres: tokio_postgres::Config,
    /// The encryption to use if the `ssl_mode` of `postgres` requires or prefers it.
    pub tls: Tls,
}

impl ListenConfig {
    /// Creates options from their two parts.
    ///
    /// ```
    /// use doorbell::listen::{ListenConfig, Tls};
    ///
    /// let config = ListenConfig::new(tokio_postgres::Config::new(), Tls::unverified());
    /// ```
    pub fn new(postgres: tokio_postgres::Config, tls: Tls) -> Self {
        Self { postgres, tls }
    }

    /// Converts the options of a sqlx pool.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`] if a certificate or key cannot be read.
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
        sqlx::convert(options)?.listen_config()
    }

    /// Sets the options that a listener needs and the user has not set.
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
        // As in libpq, a Unix socket is never encrypted.
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
        text.parse::<ConnectionString>()?.listen_config()
    }
}

/// Does not verify certificates, like `sslmode=require` without a root certificate.
impl From<tokio_postgres::Config> for ListenConfig {
    fn from(postgres: tokio_postgres::Config) -> Self {
        Self::new(postgres, Tls::unverified())
    }
}

/// Omits the password.
impl fmt::Debug for ListenConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenConfig")
            .field("postgres", &self.postgres)
            .field("tls", &self.tls)
            .finish()
    }
}
