//! The listener over TLS, in each of libpq's modes. Needs a server that was built with TLS.

mod listen_support;

use std::path::PathBuf;

use doorbell::listen::{ListenConfig, ListenError, ListenMultiplexer};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use throwaway_postgres::Server;

use listen_support::notification;

/// A server with TLS, the file of the authority that signed its certificate, and that of another authority.
struct Encrypted {
    server: Server,
    authority: PathBuf,
    other_authority: PathBuf,
    _directory: tempfile::TempDir,
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn encrypted(name: &str) -> Encrypted {
    let (signer, other) = (authority("signer"), authority("other"));
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
        other_authority: write("other.pem", other.pem()),
        server,
        _directory: directory,
    }
}

impl Encrypted {
    fn url(&self, parameters: &str) -> String {
        let parameters = parameters
            .replace("AUTHORITY", self.authority.to_str().unwrap())
            .replace("OTHER", self.other_authority.to_str().unwrap());
        format!(
            "postgres://postgres@localhost:{}/postgres?{parameters}",
            self.server.port()
        )
    }

    async fn accepts(&self, parameters: &str) {
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
async fn each_ssl_mode_verifies_what_libpq_documents() {
    let right = encrypted("localhost");
    right.accepts("sslmode=prefer").await;
    right.accepts("").await;
    right.accepts("sslmode=require").await;
    right.accepts("sslmode=require&sslrootcert=AUTHORITY").await;
    right.refuses("sslmode=require&sslrootcert=OTHER").await;
    right.accepts("sslmode=verify-ca&sslrootcert=AUTHORITY").await;
    right.refuses("sslmode=verify-ca&sslrootcert=OTHER").await;
    right.refuses("sslmode=verify-ca").await; // not signed by a public authority
    right.accepts("sslmode=verify-full&sslrootcert=AUTHORITY").await;
    right.refuses("sslmode=verify-full&sslrootcert=OTHER").await;
    right.refuses("sslmode=disable").await;

    let other = encrypted("db.example");
    other.accepts("sslmode=require").await;
    other.accepts("sslmode=verify-ca&sslrootcert=AUTHORITY").await;
    other.refuses("sslmode=verify-full&sslrootcert=AUTHORITY").await;
    let missing = ListenMultiplexer::connect(&other.url("sslmode=verify-ca&sslrootcert=/nowhere.pem")).await;
    assert!(matches!(missing, Err(ListenError::Config(_))), "{missing:?}");
}

/// The options of a sqlx pool, with the root certificate as a file and as PEM text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_options_of_a_sqlx_pool_are_used() {
    let encrypted = encrypted("localhost");
    let options = PgConnectOptions::new_without_pgpass()
        .host("localhost")
        .port(encrypted.server.port())
        .username("postgres")
        .application_name("sqlx pool")
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
        mux.notify("jobs", "hello").await.unwrap();
        assert_eq!(notification(&mut jobs).await.payload(), "hello");
        let pid = mux.health().server.unwrap().backend_pid;
        let name = format!("SELECT application_name FROM pg_stat_activity WHERE pid = {pid}");
        assert_eq!(encrypted.server.psql(&name).unwrap(), "sqlx pool");
    }
    let unrelated = options
        .ssl_mode(PgSslMode::VerifyFull)
        .ssl_root_cert(&encrypted.other_authority);
    let config = ListenConfig::from_sqlx(&unrelated).unwrap();
    let refused = ListenMultiplexer::builder().config(config).connect().await;
    assert!(matches!(refused, Err(ListenError::Connect(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_is_not_encrypted_in_any_mode() {
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
