//! A sqlx pool's options, as tokio-postgres's.

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::ConfigError;
use super::ListenConfig;
use super::ssl_mode::{Certificates, Mode};

pub(super) fn translate(options: &PgConnectOptions) -> Result<ListenConfig, ConfigError> {
    let mut postgres = tokio_postgres::Config::new();
    match options.get_socket() {
        #[cfg(unix)]
        Some(directory) => postgres.host_path(directory),
        #[cfg(not(unix))]
        Some(_) => return Err(ConfigError("there are no Unix sockets here".to_owned())),
        None => postgres.host(address(options.get_host())),
    };
    postgres.port(options.get_port());
    postgres.user(options.get_username());
    // As the server does by itself, but a pooler in between may want to be told.
    postgres.dbname(options.get_database().unwrap_or(options.get_username()));
    if let Some(name) = options.get_application_name() {
        postgres.application_name(name);
    }
    if let Some(options) = options.get_options() {
        postgres.options(options);
    }
    let mode = match options.get_ssl_mode() {
        PgSslMode::Disable => Mode::Disable,
        PgSslMode::Allow | PgSslMode::Prefer => Mode::Prefer,
        PgSslMode::Require => Mode::Require,
        PgSslMode::VerifyCa => Mode::VerifyCa,
        PgSslMode::VerifyFull => Mode::VerifyFull,
    };
    postgres.ssl_mode(mode.negotiation());
    let mut certificates = Certificates::default();

    // The rest is only in the URL, which sqlx cannot write for every user name, database and host, and then panics or writes
    // another; so these are replaced before it is asked for one.
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
    Ok(ListenConfig::new(postgres, mode.tls(&certificates)?))
}

/// sqlx writes the PEM text itself, or the name of a file behind a word of its own.
fn source(value: &str) -> String {
    value.strip_prefix("file: ").unwrap_or(value).to_owned()
}

/// URLs write IPv6 addresses in brackets, and sqlx keeps these.
fn address(host: &str) -> &str {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio_postgres::config::{Host, SslMode};

    use super::*;

    fn options() -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("h")
            .port(5433)
            .username("u")
    }

    fn translated(options: &PgConnectOptions) -> tokio_postgres::Config {
        translate(options).unwrap().postgres
    }

    #[test]
    fn everything_that_matters_is_carried_over() {
        let options = options()
            .database("d")
            .password("p")
            .application_name("a")
            .ssl_mode(PgSslMode::Require)
            .statement_cache_capacity(7)
            .options([("geqo", "off"), ("search_path", "a b")]);
        let config = translated(&options);
        assert_eq!(config.get_hosts(), [Host::Tcp("h".into())]);
        assert_eq!(config.get_ports(), [5433]);
        assert_eq!((config.get_user(), config.get_dbname()), (Some("u"), Some("d")));
        assert_eq!(config.get_password(), Some(&b"p"[..]));
        assert_eq!(config.get_application_name(), Some("a"));
        assert_eq!(config.get_ssl_mode(), SslMode::Require);
        assert_eq!(config.get_options(), options.get_options());
    }

    #[test]
    fn what_is_missing_stays_missing() {
        let config = translated(&options());
        assert_eq!((config.get_password(), config.get_options()), (None, None));
        assert_eq!(config.get_dbname(), Some("u"));
    }

    #[test]
    fn ipv6_addresses_lose_their_brackets_and_sockets_keep_their_path() {
        for host in ["::1", "[::1]"] {
            assert_eq!(translated(&options().host(host)).get_hosts(), [Host::Tcp("::1".into())]);
        }
        let from_url: PgConnectOptions = "postgres://u:p@[fe80::1]:7/d".parse().unwrap();
        assert_eq!(translated(&from_url).get_hosts(), [Host::Tcp("fe80::1".into())]);

        let socket = options().socket("/run/post gres/ü").password("p");
        let config = translated(&socket);
        assert_eq!(config.get_hosts(), [Host::Unix("/run/post gres/ü".into())]);
        assert_eq!(config.get_password(), Some(&b"p"[..]));
    }

    #[test]
    fn modes_are_translated() {
        for (mode, expected) in [
            (PgSslMode::Disable, SslMode::Disable),
            (PgSslMode::Allow, SslMode::Prefer),
            (PgSslMode::Prefer, SslMode::Prefer),
            (PgSslMode::Require, SslMode::Require),
            (PgSslMode::VerifyCa, SslMode::Require),
            (PgSslMode::VerifyFull, SslMode::Require),
        ] {
            assert_eq!(translated(&options().ssl_mode(mode)).get_ssl_mode(), expected);
        }
        let missing = options().ssl_mode(PgSslMode::VerifyCa).ssl_root_cert("/no where");
        assert!(matches!(translate(&missing), Err(ConfigError(what)) if what.contains("\"/no where\"")));
    }

    proptest! {
        /// sqlx cannot write a URL for all of these; the translation does not depend on it.
        #[test]
        fn any_text_is_carried_over(user in "\\PC{1,10}", password in "[^\0]{1,20}", database in "\\PC{1,10}") {
            let config = translated(&options().username(&user).password(&password).database(&database));
            prop_assert_eq!(config.get_user(), Some(user.as_str()));
            prop_assert_eq!(config.get_password(), Some(password.as_bytes()));
            prop_assert_eq!(config.get_dbname(), Some(database.as_str()));
        }
    }
}
