//! A sqlx pool's options, as tokio-postgres's.

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::ListenConfig;
use super::tls::{Certificates, Mode};
use crate::listen::error::ListenError;

pub(super) fn translate(options: &PgConnectOptions) -> Result<ListenConfig, ListenError> {
    let mut postgres = tokio_postgres::Config::new();
    match options.get_socket() {
        #[cfg(unix)]
        Some(directory) => postgres.host_path(directory),
        #[cfg(not(unix))]
        Some(_) => return Err(ListenError::Config("there are no Unix sockets here".to_owned())),
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
            "sslrootcert" => certificates.root = Some(value.into_owned()),
            "sslcert" => certificates.client = Some(value.into_owned()),
            "sslkey" => certificates.client_key = Some(value.into_owned()),
            _ => {}
        }
    }
    Ok(ListenConfig::new(postgres, mode.tls(&certificates)?))
}

/// URLs write IPv6 addresses in brackets, and sqlx keeps these.
fn address(host: &str) -> &str {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    bare.unwrap_or(host)
}
