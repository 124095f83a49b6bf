//! What a connection string sets, for the listening connection and for pools.

use core::str::FromStr;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio_postgres::config::{Host, TargetSessionAttrs};

use super::ssl_mode::{Certificates, SslMode};
use super::{ConfigError, ListenConfig, is_pem, parse};
use crate::pg::connect::Address;

/// A parsed connection string.
pub(crate) struct ConnectionString {
    pub(super) postgres: tokio_postgres::Config,
    pub(super) mode: Option<SslMode>,
    pub(super) certificates: Certificates,
    pub(super) statement_cache_capacity: Option<usize>,
}

impl FromStr for ConnectionString {
    type Err = ConfigError;

    /// What the string does not set comes from the environment: sqlx reads it, too, and cannot be kept from it.
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let environment = super::sqlx::convert(&PgConnectOptions::new_without_pgpass())?;
        let parsed = parse::parse(text)?;
        parsed.with_defaults(environment)
    }
}

impl ConnectionString {
    fn with_defaults(mut self, defaults: Self) -> Result<Self, ConfigError> {
        let (own, other) = (&mut self.postgres, &defaults.postgres);
        if own.get_hosts().is_empty() && own.get_hostaddrs().is_empty() {
            for host in other.get_hosts() {
                match host {
                    Host::Tcp(name) => own.host(name),
                    #[cfg(unix)]
                    Host::Unix(path) => own.host_path(path),
                };
            }
        }
        if own.get_ports().is_empty() {
            for &port in other.get_ports() {
                own.port(port);
            }
        }
        if own.get_user().is_none() {
            own.user(other.get_user().unwrap_or_default());
        }
        if own.get_dbname().is_none() {
            let user = own.get_user().unwrap_or_default().to_owned();
            // The default of `defaults` is the user's name.
            let default = other.get_dbname().filter(|&name| Some(name) != other.get_user());
            own.dbname(default.unwrap_or(&user));
        }
        if let (None, Some(password)) = (own.get_password(), other.get_password()) {
            own.password(password);
        }
        if let (None, Some(name)) = (own.get_application_name(), other.get_application_name()) {
            own.application_name(name);
        }
        if let (None, Some(options)) = (own.get_options(), other.get_options()) {
            own.options(options);
        }
        self.mode = self.mode.or(defaults.mode);
        let (own, other) = (&mut self.certificates, defaults.certificates);
        own.root = own.root.take().or(other.root);
        if own.client.is_none() && own.client_key.is_none() {
            (own.client, own.client_key) = (other.client, other.client_key);
        }
        self.check_hosts()?;
        Ok(self)
    }

    /// tokio-postgres reports these only when it connects.
    fn check_hosts(&self) -> Result<(), ConfigError> {
        let (hosts, addresses) = (self.postgres.get_hosts().len(), self.postgres.get_hostaddrs().len());
        if hosts > 0 && addresses > 0 && hosts != addresses {
            return Err(ConfigError(format!("{hosts} hosts and {addresses} hostaddrs are set")));
        }
        let (hosts, ports) = (hosts.max(addresses), self.postgres.get_ports().len());
        if ports > 1 && ports != hosts {
            return Err(ConfigError(format!("{hosts} hosts and {ports} ports are set")));
        }
        Ok(())
    }

    fn mode(&self) -> SslMode {
        self.mode.unwrap_or(SslMode::Prefer) // the default of both libpq and tokio-postgres
    }

    pub(crate) fn listen_config(&self) -> Result<ListenConfig, ConfigError> {
        let mut postgres = self.postgres.clone();
        postgres.ssl_mode(self.mode().negotiation());
        Ok(ListenConfig::new(postgres, self.mode().tls(&self.certificates)?))
    }

    /// Whether there are servers among which to choose, or some that the string excludes: a pool of sqlx has one host.
    pub(crate) fn has_choice(&self) -> bool {
        let hosts = self.postgres.get_hosts().len().max(self.postgres.get_hostaddrs().len());
        hosts > 1 || self.postgres.get_target_session_attrs() != TargetSessionAttrs::Any
    }

    /// The options of a pool's connections.
    pub(crate) fn pool_options(&self) -> Result<PoolOptions, ConfigError> {
        let postgres = &self.postgres;
        let verify_name = self.mode() == SslMode::VerifyFull;
        if verify_name && !postgres.get_hosts().is_empty() && !postgres.get_hostaddrs().is_empty() {
            let reason =
                "hostaddr cannot be combined with sslmode=verify-full: sqlx verifies the name that it connects to";
            return Err(ConfigError(reason.to_owned()));
        }
        let password = core::str::from_utf8(postgres.get_password().unwrap_or_default());
        let password = password.map_err(|_| ConfigError("the password is not UTF-8".to_owned()))?;
        let mut options = with_startup_options(postgres.get_options())?
            .username(postgres.get_user().unwrap_or_default())
            .password(password)
            .database(postgres.get_dbname().unwrap_or_default())
            .ssl_mode(match self.mode() {
                SslMode::Disable => PgSslMode::Disable,
                SslMode::Prefer => PgSslMode::Prefer,
                // As in libpq: with a root certificate, `require` means `verify-ca`.
                SslMode::Require if self.certificates.root.is_some() => PgSslMode::VerifyCa,
                SslMode::Require => PgSslMode::Require,
                SslMode::VerifyCa => PgSslMode::VerifyCa,
                SslMode::VerifyFull => PgSslMode::VerifyFull,
            })
            // By default pgbouncer refuses connections with this parameter, which only concerns numbers as text.
            .extra_float_digits(None)
            // The health of the bus tells what is slow or fails, once per change.
            .disable_statement_logging();
        if let Some(name) = postgres.get_application_name() {
            options = options.application_name(name);
        }
        if let Some(capacity) = self.statement_cache_capacity {
            options = options.statement_cache_capacity(capacity);
        }
        let certificates = &self.certificates;
        options = match certificates.root.as_deref() {
            None | Some("system") => options, // Mozilla's
            Some(pem) if is_pem(pem) => options.ssl_root_cert_from_pem(pem.as_bytes().to_vec()),
            Some(file) => options.ssl_root_cert(file),
        };
        options = match certificates.client.as_deref() {
            None => options,
            Some(pem) if is_pem(pem) => options.ssl_client_cert_from_pem(pem),
            Some(file) => options.ssl_client_cert(file),
        };
        options = match certificates.client_key.as_deref() {
            None => options,
            Some(pem) if is_pem(pem) => options.ssl_client_key_from_pem(pem),
            Some(file) => options.ssl_client_key(file),
        };
        Ok(PoolOptions { options, verify_name })
    }
}

/// The options of a pool's connections, without the server.
pub(crate) struct PoolOptions {
    options: PgConnectOptions,
    /// Whether TLS verifies the name that the pool connects to.
    verify_name: bool,
}

impl PoolOptions {
    /// A transaction pooler may run the next transaction in a session that has not prepared the statement.
    pub(crate) fn without_statement_cache(self) -> Self {
        Self {
            options: self.options.statement_cache_capacity(0),
            ..self
        }
    }

    /// Options that lead to this address.
    pub(crate) fn to(&self, address: &Address) -> PgConnectOptions {
        let options = self.options.clone().port(address.port);
        match (&address.host, address.ip) {
            (Host::Tcp(name), Some(ip)) if !self.verify_name || name.is_empty() => options.host(&ip.to_string()),
            (Host::Tcp(name), _) => options.host(name),
            // As in libpq, a Unix socket is never encrypted.
            #[cfg(unix)]
            (Host::Unix(directory), _) => options.socket(directory).ssl_mode(PgSslMode::Disable),
        }
    }
}

/// sqlx takes the server's command-line options unchanged only from a URL.
fn with_startup_options(startup_options: Option<&str>) -> Result<PgConnectOptions, ConfigError> {
    let Some(startup_options) = startup_options else {
        return Ok(PgConnectOptions::new_without_pgpass());
    };
    let encoded = percent_encoding::utf8_percent_encode(startup_options, percent_encoding::NON_ALPHANUMERIC);
    // With a password, sqlx reads no password file.
    let url = format!("postgres://x:x@localhost?options={encoded}");
    url.parse().map_err(|error| ConfigError(format!("options: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::connect::hosts;

    fn pool_options(text: &str) -> Vec<PgConnectOptions> {
        let parsed: ConnectionString = text.parse().unwrap();
        let options = parsed.pool_options().unwrap();
        hosts(&parsed.postgres)
            .iter()
            .map(|address| options.to(address))
            .collect()
    }

    #[test]
    fn each_host_has_its_options() {
        let text =
            "postgres://us%65r:p%40ss@h1:1,[::1]:2/d%62?application_name=a&options=-c%20geqo%3Doff&sslmode=require";
        let options = pool_options(text);
        let servers: Vec<_> = options
            .iter()
            .map(|options| (options.get_host(), options.get_port()))
            .collect();
        assert_eq!(servers, [("h1", 1), ("::1", 2)]);
        for options in &options {
            assert_eq!((options.get_username(), options.get_database()), ("user", Some("db")));
            assert_eq!(options.get_application_name(), Some("a"));
            assert_eq!(options.get_options(), Some("-c geqo=off"));
            assert!(matches!(options.get_ssl_mode(), PgSslMode::Require));
            let config = ListenConfig::from_sqlx(options).unwrap().postgres;
            assert_eq!(config.get_password(), Some(&b"p@ss"[..]));
        }
        let options = pool_options("host=h1,h2 port=7 user=u");
        let servers: Vec<_> = options
            .iter()
            .map(|options| (options.get_host(), options.get_port()))
            .collect();
        assert_eq!(servers, [("h1", 7), ("h2", 7)]);
        assert_eq!(options[0].get_database(), Some("u"));
    }

    #[test]
    fn pools_connect_to_addresses_but_verify_names() {
        let [options] = &pool_options("host=db.internal hostaddr=127.0.0.1 user=u")[..] else {
            panic!("one host")
        };
        assert_eq!(options.get_host(), "127.0.0.1");
        let verified = "host=db.internal user=u sslmode=verify-full";
        let parsed: ConnectionString = verified.parse().unwrap();
        let mut address = hosts(&parsed.postgres).remove(0);
        address.ip = Some([127, 0, 0, 1].into());
        assert_eq!(parsed.pool_options().unwrap().to(&address).get_host(), "db.internal");
        let both = "host=db.internal hostaddr=127.0.0.1 user=u sslmode=verify-full";
        assert!(both.parse::<ConnectionString>().unwrap().pool_options().is_err());
    }

    #[test]
    fn sockets_are_not_encrypted() {
        let [options] = &pool_options("host=/run/pg port=7 user=u sslmode=require")[..] else {
            panic!("one host")
        };
        assert_eq!(options.get_socket().unwrap().to_str(), Some("/run/pg"));
        assert!(matches!(options.get_ssl_mode(), PgSslMode::Disable));
    }

    #[test]
    fn a_root_certificate_is_verified_by_pools_too() {
        let verifies = |text: &str| matches!(pool_options(text)[0].get_ssl_mode(), PgSslMode::VerifyCa);
        assert!(verifies("host=h user=u sslmode=require sslrootcert=/a"));
        assert!(!verifies("host=h user=u sslmode=require"));
    }
}
