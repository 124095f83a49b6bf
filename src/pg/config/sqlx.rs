//! Converts the connection options of sqlx.

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::ConfigError;
use super::connection_string::ConnectionString;
use super::ssl_mode::{Certificates, SslMode};

pub(super) fn convert(options: &PgConnectOptions) -> Result<ConnectionString, ConfigError> {
    let mut postgres = tokio_postgres::Config::new();
    match options.get_socket() {
        #[cfg(unix)]
        Some(directory) => postgres.host_path(directory),
        #[cfg(not(unix))]
        Some(_) => {
            return Err(ConfigError(
                "Unix sockets are not supported on this platform".to_owned(),
            ));
        }
        None => postgres.host(address(options.get_host())),
    };
    postgres.port(options.get_port());
    postgres.user(options.get_username());
    // The server's own default, but a pooler may require it.
    postgres.dbname(options.get_database().unwrap_or(options.get_username()));
    if let Some(name) = options.get_application_name() {
        postgres.application_name(name);
    }
    if let Some(options) = options.get_options() {
        postgres.options(options);
    }
    let mode = match options.get_ssl_mode() {
        PgSslMode::Disable => SslMode::Disable,
        PgSslMode::Allow | PgSslMode::Prefer => SslMode::Prefer,
        PgSslMode::Require => SslMode::Require,
        PgSslMode::VerifyCa => SslMode::VerifyCa,
        PgSslMode::VerifyFull => SslMode::VerifyFull,
    };
    let mut certificates = Certificates::default();

    // sqlx exposes the remaining options only through `to_url_lossy`, which panics on or mangles some users, databases and hosts;
    // substitute placeholders first.
    let plain = options.clone().host("localhost").username("x").database("x");
    let url = plain.to_url_lossy();
    if let Some(password) = url.password() {
        postgres.password(percent_encoding::percent_decode_str(password).collect::<Vec<u8>>());
    }
    for (key, value) in url.query_pairs() {
        match &*key {
            "sslrootcert" => certificates.root = Some(source(&value)),
            "sslcert" => certificates.client = Some(source(&value)),
            "sslkey" => certificates.client_key = Some(source(&value)),
            _ => {}
        }
    }
    Ok(ConnectionString {
        postgres,
        mode: Some(mode),
        certificates,
        statement_cache_capacity: None,
    })
}

/// Removes the prefix with which sqlx marks a file name; otherwise, the value is the PEM text itself.
fn source(value: &str) -> String {
    value.strip_prefix("file: ").unwrap_or(value).to_owned()
}

/// Removes the brackets of an IPv6 address, which sqlx keeps from the URL.
fn address(host: &str) -> &str {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_postgres::config::{Host, SslMode};

    use super::*;
    use crate::pg::config::ListenConfig;

    fn options() -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("h")
            .port(5433)
            .username("u")
    }

    fn converted(options: &PgConnectOptions) -> tokio_postgres::Config {
        ListenConfig::from_sqlx(options).unwrap().postgres
    }

    #[test]
    fn all_options_are_converted() {
        let options = options()
            .database("d")
            .password("p")
            .application_name("a")
            .ssl_mode(PgSslMode::Require)
            .statement_cache_capacity(7)
            .options([("geqo", "off"), ("search_path", "a b")]);
        let config = converted(&options);
        assert_eq!(config.get_hosts(), [Host::Tcp("h".into())]);
        assert_eq!(config.get_ports(), [5433]);
        assert_eq!((config.get_user(), config.get_dbname()), (Some("u"), Some("d")));
        assert_eq!(config.get_password(), Some(&b"p"[..]));
        assert_eq!(config.get_application_name(), Some("a"));
        assert_eq!(config.get_ssl_mode(), SslMode::Require);
        assert_eq!(config.get_options(), options.get_options());
    }

    #[test]
    fn unset_options_stay_unset() {
        let config = converted(&options());
        assert_eq!((config.get_password(), config.get_options()), (None, None));
        assert_eq!(config.get_dbname(), Some("u"));
    }

    #[test]
    fn ipv6_addresses_lose_their_brackets_and_sockets_keep_their_path() {
        for host in ["::1", "[::1]"] {
            assert_eq!(converted(&options().host(host)).get_hosts(), [Host::Tcp("::1".into())]);
        }
        let from_url: PgConnectOptions = "postgres://u:p@[fe80::1]:7/d".parse().unwrap();
        assert_eq!(converted(&from_url).get_hosts(), [Host::Tcp("fe80::1".into())]);

        let socket = options().socket("/run/post gres/ü").password("p");
        let config = converted(&socket);
        assert_eq!(config.get_hosts(), [Host::Unix("/run/post gres/ü".into())]);
        assert_eq!(config.get_password(), Some(&b"p"[..]));
    }

    #[test]
    fn ssl_modes_are_mapped() {
        for (mode, expected) in [
            (PgSslMode::Disable, SslMode::Disable),
            (PgSslMode::Allow, SslMode::Prefer),
            (PgSslMode::Prefer, SslMode::Prefer),
            (PgSslMode::Require, SslMode::Require),
            (PgSslMode::VerifyCa, SslMode::Require),
            (PgSslMode::VerifyFull, SslMode::Require),
        ] {
            assert_eq!(converted(&options().ssl_mode(mode)).get_ssl_mode(), expected);
        }
        let missing = options().ssl_mode(PgSslMode::VerifyCa).ssl_root_cert("/no where");
        assert!(matches!(ListenConfig::from_sqlx(&missing), Err(ConfigError(what)) if what.contains("\"/no where\"")));
    }

    proptest! {
        /// sqlx cannot write a URL for all of these; the conversion does not depend on it.
        #[test]
        fn any_user_password_and_database_are_converted(user in "\\PC{1,10}", password in "[^\0]{1,20}", database in "\\PC{1,10}") {
            let config = converted(&options().username(&user).password(&password).database(&database));
            prop_assert_eq!(config.get_user(), Some(user.as_str()));
            prop_assert_eq!(config.get_password(), Some(password.as_bytes()));
            prop_assert_eq!(config.get_dbname(), Some(database.as_str()));
        }
    }
}
