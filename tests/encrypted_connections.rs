//! The listener over TLS, by the modes that libpq has. Needs a server that was built with TLS.

#[path = "listen_support/mod.rs"]
mod support;

use std::path::PathBuf;

use doorbell::listen::{ListenConfig, ListenError, ListenMultiplexer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use throwaway_postgres::Server;

use support::notification;

/// A server whose certificate is for `name`, and the file of the authority that signed it.
struct Encrypted {
    server: Server,
    authority: PathBuf,
    stranger: PathBuf,
    _directory: tempfile::TempDir,
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn encrypted(name: &str) -> Encrypted {
    let (signer, stranger) = (authority("ours"), authority("a stranger"));
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &signer).unwrap();
    let server = Server::builder()
        .tls(certificate.pem(), key.serialize_pem())
        .tls_only()
        .start()
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, pem: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path
    };
    Encrypted {
        authority: write("authority.pem", signer.pem()),
        stranger: write("stranger.pem", stranger.pem()),
        server,
        _directory: directory,
    }
}

impl Encrypted {
    fn url(&self, parameters: &str) -> String {
        let parameters = parameters
            .replace("AUTHORITY", self.authority.to_str().unwrap())
            .replace("STRANGER", self.stranger.to_str().unwrap());
        format!(
            "postgres://postgres@localhost:{}/postgres?{parameters}",
            self.server.port()
        )
    }

    async fn takes(&self, parameters: &str) {
        let mux = ListenMultiplexer::connect(&self.url(parameters)).await;
        let mux = mux.unwrap_or_else(|error| panic!("{parameters}: {error}"));
        let pid = mux.health().server.unwrap().backend_pid;
        let encrypted = format!("SELECT ssl FROM pg_stat_ssl WHERE pid = {pid}");
        assert_eq!(self.server.psql(&encrypted).unwrap(), "t", "{parameters}");
    }

    async fn refuses(&self, parameters: &str) {
        let refused = ListenMultiplexer::connect(&self.url(parameters)).await;
        assert!(
            matches!(refused, Err(ListenError::Connect(_))),
            "{parameters}: {refused:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mode_verifies_what_libpq_says() {
    let right = encrypted("localhost");
    right.takes("sslmode=prefer").await;
    right.takes("").await;
    right.takes("sslmode=require").await;
    right.takes("sslmode=require&sslrootcert=AUTHORITY").await;
    right.refuses("sslmode=require&sslrootcert=STRANGER").await;
    right.takes("sslmode=verify-ca&sslrootcert=AUTHORITY").await;
    right.refuses("sslmode=verify-ca&sslrootcert=STRANGER").await;
    right.refuses("sslmode=verify-ca").await; // the roots of the web did not sign it
    right.takes("sslmode=verify-full&sslrootcert=AUTHORITY").await;
    right.refuses("sslmode=verify-full&sslrootcert=STRANGER").await;
    right.refuses("sslmode=disable").await;

    let other = encrypted("db.example");
    other.takes("sslmode=require").await;
    other.takes("sslmode=verify-ca&sslrootcert=AUTHORITY").await;
    other.refuses("sslmode=verify-full&sslrootcert=AUTHORITY").await;
    let missing = ListenMultiplexer::connect(&other.url("sslmode=verify-ca&sslrootcert=/nowhere.pem")).await;
    assert!(matches!(missing, Err(ListenError::Config(_))), "{missing:?}");
}

/// A pool's options lead to the same place: over TLS, by certificate file and by its text, and by password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pools_options_are_followed() {
    let encrypted = encrypted("localhost");
    let options = PgConnectOptions::new_without_pgpass()
        .host("localhost")
        .port(encrypted.server.port())
        .username("postgres")
        .application_name("as the pool does")
        .options([("geqo", "off"), ("DateStyle", "ISO, DMY")]);
    let text = std::fs::read(&encrypted.authority).unwrap();
    for options in [
        options
            .clone()
            .ssl_mode(PgSslMode::VerifyFull)
            .ssl_root_cert(&encrypted.authority),
        options
            .clone()
            .ssl_mode(PgSslMode::VerifyCa)
            .ssl_root_cert_from_pem(text),
        options.clone().ssl_mode(PgSslMode::Require),
    ] {
        let config = ListenConfig::from_sqlx(&options).unwrap();
        let mux = ListenMultiplexer::builder().config(config).connect().await.unwrap();
        let mut jobs = mux.subscribe("jobs").await.unwrap();
        mux.notify("jobs", "heard").await.unwrap();
        assert_eq!(notification(&mut jobs).await.payload(), "heard");
        let pid = mux.health().server.unwrap().backend_pid;
        let name = format!("SELECT application_name FROM pg_stat_activity WHERE pid = {pid}");
        assert_eq!(encrypted.server.psql(&name).unwrap(), "as the pool does");
    }
    let stranger = options
        .ssl_mode(PgSslMode::VerifyFull)
        .ssl_root_cert(&encrypted.stranger);
    let config = ListenConfig::from_sqlx(&stranger).unwrap();
    let refused = ListenMultiplexer::builder().config(config).connect().await;
    assert!(matches!(refused, Err(ListenError::Connect(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_needs_no_encryption_whatever_the_mode() {
    let encrypted = encrypted("localhost");
    let directory = encrypted.server.socket_directory();
    let directory = directory.to_str().unwrap();
    let port = encrypted.server.port();
    let encoded = directory.replace('/', "%2F");
    let options = PgConnectOptions::new_without_pgpass()
        .socket(directory)
        .port(port)
        .username("postgres")
        .ssl_mode(PgSslMode::Require);
    for config in [
        format!("postgres://postgres@{encoded}:{port}/postgres?sslmode=require")
            .parse()
            .unwrap(),
        format!("host={directory} port={port} user=postgres sslmode=require")
            .parse()
            .unwrap(),
        ListenConfig::from_sqlx(&options).unwrap(),
    ] {
        ListenMultiplexer::builder().config(config).connect().await.unwrap();
    }
}
