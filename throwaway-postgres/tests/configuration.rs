//! Server settings, poolers and databases.

use std::process::Command;

use throwaway_postgres::{Database, Error, Pooler, Server};

#[test]
fn settings_apply_and_can_be_changed() {
    let server = Server::builder()
        .setting("log_line_prefix", r"it's \ %p ")
        .setting("work_mem", "5MB")
        .start()
        .unwrap();
    assert_eq!(server.psql("SHOW log_line_prefix").unwrap(), r"it's \ %p ");
    server.set("work_mem", "6MB").unwrap();
    assert_eq!(server.psql("SHOW work_mem").unwrap(), "6MB");
    assert!(matches!(server.set("no_such_setting", 1), Err(Error::Command { .. })));
}

#[test]
fn a_start_error_includes_the_servers_log() {
    let error = Server::builder().setting("no_such_setting", 1).start().unwrap_err();
    assert!(matches!(error, Error::Start { .. }), "{error}");
    assert!(
        error.to_string().contains("unrecognized configuration parameter"),
        "{error}"
    );
}

#[test]
fn the_password_is_required() {
    let server = Server::builder().password("p w:'@/%").start().unwrap();
    assert_eq!(server.psql("SELECT current_user").unwrap(), "postgres");
    let refused = Command::new("psql")
        .args([
            "-X",
            "--no-password",
            "-d",
            &format!("postgres://postgres@127.0.0.1:{}/postgres", server.port()),
        ])
        .args(["-c", "SELECT 1"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let by_socket = format!(
        "host={} port={} user=postgres",
        server.socket_directory().display(),
        server.port()
    );
    let refused = Command::new("psql")
        .args(["-X", "--no-password", "-d", &by_socket, "-c", "SELECT 1"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no password supplied"));
}

#[test]
fn the_encoding_is_applied() {
    let server = Server::builder().encoding("SQL_ASCII").start().unwrap();
    assert_eq!(server.psql("SHOW server_encoding").unwrap(), "SQL_ASCII");
}

#[test]
fn tls_can_be_required() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let server = Server::builder()
        .tls(certified.cert.pem(), certified.signing_key.serialize_pem())
        .tls_only()
        .start()
        .unwrap();
    assert_eq!(
        server
            .psql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            .unwrap(),
        "t"
    );
    let plain = format!("{}?sslmode=disable", server.url());
    assert!(
        !Command::new("psql")
            .args(["-X", "-d", &plain, "-c", "SELECT 1"])
            .output()
            .unwrap()
            .status
            .success()
    );
}

#[test]
fn poolers_start_in_both_modes() {
    let server = Server::builder().password("secret").start().unwrap();
    let pooler = Pooler::transaction_mode(&server).unwrap();
    let output = Command::new("psql")
        .args(["-X", "-At", "-d", &pooler.url(), "-c", "SELECT inet_server_port()"])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        server.port().to_string(),
        "{}",
        pooler.log()
    );
    assert!(Pooler::session_mode(&server).is_ok());
}

#[test]
fn a_database_is_dropped_with_its_handle() {
    let keeper = Database::fresh().unwrap();
    let exists = |name: &str| {
        keeper
            .psql(&format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'"))
            .unwrap()
    };
    let database = Database::fresh().unwrap();
    let name = database.name().to_owned();
    assert_eq!(database.psql("SELECT current_database()").unwrap(), name);
    assert!(database.url().ends_with(&name));
    assert_eq!(exists(&name), "1");
    drop(database);
    assert_eq!(exists(&name), "0");
}
