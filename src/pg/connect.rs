//! Opens sessions: tries the hosts of the connection options, in their order, until one accepts.
//!
//! tokio-postgres does that, too, but does not tell which host accepted, spends all the time on one that does not answer, and repeats a login
//! that was refused on every host.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::config::ListenConfig;
use super::deadline::deadline_in;
use super::server_error::ServerError;

/// The half of tokio-postgres's connection that does the I/O.
pub(crate) type RawConnection = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// How long to wait for the server to close a connection.
const CLOSE_LIMIT: Duration = Duration::from_millis(100);

/// A host, or one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The name, for TLS, or the directory of a Unix socket.
    pub(crate) host: Host,
    /// Where to connect. `None` for a socket, and for a name that was not looked up.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) port: u16,
}

/// A session. Nothing is received until `raw` is polled.
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) raw: RawConnection,
    pub(crate) address: Address,
}

impl Connected {
    /// Ends the session, and waits a moment for the server to confirm it.
    pub(crate) async fn close(self) {
        drop(self.client); // tokio-postgres then sends Terminate
        let _ = timeout(CLOSE_LIMIT, self.raw).await; // the session is of no use any more
    }
}

/// The hosts of connection options, in their order, without looking up names.
pub(crate) fn hosts(config: &Config) -> Vec<Address> {
    let (names, ips, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let host = |index: usize| Address {
        host: match (names.get(index), ips.get(index)) {
            (Some(host), _) => host.clone(),
            // rustls requires a server name even if it is not verified: use the address.
            (None, ip) => Host::Tcp(ip.map(IpAddr::to_string).unwrap_or_default()),
        },
        ip: ips.get(index).copied(),
        port: *ports.get(index).or(ports.first()).unwrap_or(&5432),
    };
    (0..names.len().max(ips.len())).map(host).collect()
}

/// Opens a session on the first host that accepts it and meets `target_session_attrs`. If the time limit passes before the last address is
/// tried, so does this; the caller limits that one.
pub(crate) async fn connect(config: &ListenConfig, limit: Duration) -> Result<Connected, ServerError> {
    let deadline = deadline_in(limit);
    let options = without_hosts(&config.postgres);
    let is_random = config.postgres.get_load_balance_hosts() == LoadBalanceHosts::Random;
    let mut hosts = hosts(&config.postgres);
    if is_random {
        fastrand::shuffle(&mut hosts);
    }
    let mut left = VecDeque::from(hosts);
    let mut failure = ServerError::from(io::Error::new(io::ErrorKind::InvalidInput, "no host is set"));
    while let Some(next) = left.pop_front() {
        let share = deadline.saturating_duration_since(Instant::now()) / (left.len() as u32 + 1);
        let is_last = left.is_empty();
        let attempt = async {
            match (&next.host, next.ip) {
                (Host::Tcp(name), None) => look_up(name, &next, is_random).await.map(Attempt::LookedUp),
                _ => open(config, options.clone(), next.clone())
                    .await
                    .map(|connected| Attempt::Connected(Box::new(connected))),
            }
        };
        let attempt = if is_last {
            attempt.await
        } else {
            timeout(share, attempt)
                .await
                .unwrap_or_else(|_| Err(ServerError::timeout(share)))
        };
        match attempt {
            Ok(Attempt::Connected(connected)) => return Ok(*connected),
            Ok(Attempt::LookedUp(addresses)) => {
                for address in addresses.into_iter().rev() {
                    left.push_front(address);
                }
            }
            Err(error) if error.refuses_login() => return Err(error),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

enum Attempt {
    LookedUp(Vec<Address>),
    Connected(Box<Connected>),
}

async fn look_up(name: &str, host: &Address, is_random: bool) -> Result<Vec<Address>, ServerError> {
    let found = tokio::net::lookup_host((name, host.port))
        .await
        .map_err(ServerError::from)?;
    let address = |ip| Address {
        ip: Some(ip),
        ..host.clone()
    };
    let mut addresses: Vec<_> = found.map(|found| address(found.ip())).collect();
    if is_random {
        fastrand::shuffle(&mut addresses);
    }
    if addresses.is_empty() {
        let error = io::Error::new(io::ErrorKind::NotFound, format!("{name:?} has no address"));
        return Err(error.into());
    }
    Ok(addresses)
}

async fn open(config: &ListenConfig, mut options: Config, address: Address) -> Result<Connected, ServerError> {
    options.port(address.port);
    match &address.host {
        Host::Tcp(name) => options.host(name),
        #[cfg(unix)]
        Host::Unix(directory) => {
            // As in libpq, a Unix socket is never encrypted.
            options.ssl_mode(tokio_postgres::config::SslMode::Disable);
            options.host_path(directory)
        }
    };
    if let Some(ip) = address.ip {
        options.hostaddr(ip);
    }
    let (client, raw) = options.connect(config.tls.connector()).await?;
    Ok(Connected { client, raw, address })
}

/// tokio-postgres can only add hosts.
fn without_hosts(config: &Config) -> Config {
    let mut options = Config::new();
    options
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .target_session_attrs(config.get_target_session_attrs())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle());
    if let Some(user) = config.get_user() {
        options.user(user);
    }
    if let Some(password) = config.get_password() {
        options.password(password);
    }
    if let Some(dbname) = config.get_dbname() {
        options.dbname(dbname);
    }
    if let Some(startup_options) = config.get_options() {
        options.options(startup_options);
    }
    if let Some(name) = config.get_application_name() {
        options.application_name(name);
    }
    if let Some(&limit) = config.get_connect_timeout() {
        options.connect_timeout(limit);
    }
    if let Some(&limit) = config.get_tcp_user_timeout() {
        options.tcp_user_timeout(limit);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        options.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        options.keepalives_retries(retries);
    }
    options
}
