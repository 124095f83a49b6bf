//! The faults that can be injected into a server.

use std::time::{Duration, Instant};

use throwaway_postgres::{Error, Server, Stop};

#[test]
fn data_and_port_survive_every_way_of_stopping() {
    let server = Server::start().unwrap();
    let (url, mut pid) = (server.url(), server.pid().unwrap());
    server.psql("CREATE TABLE survivors (how text)").unwrap();
    for how in [Stop::Smart, Stop::Fast, Stop::Immediate, Stop::Kill] {
        server
            .psql(&format!("INSERT INTO survivors VALUES ('{how:?}')"))
            .unwrap();
        server.restart(how).unwrap();
        assert_eq!(server.url(), url);
        assert_ne!(server.pid().unwrap(), pid, "{how:?}");
        pid = server.pid().unwrap();
    }
    assert_eq!(
        server.psql("SELECT string_agg(how, ' ') FROM survivors").unwrap(),
        "Smart Fast Immediate Kill"
    );
}

#[test]
fn operations_on_a_stopped_server_are_errors() {
    let server = Server::start().unwrap();
    assert!(matches!(server.start_again(), Err(Error::Running)));
    server.stop(Stop::Fast).unwrap();
    server.stop(Stop::Fast).unwrap();
    assert!(matches!(server.pid(), Err(Error::NotRunning)));
    assert!(matches!(server.freeze(), Err(Error::NotRunning)));
    assert!(matches!(server.psql("SELECT 1"), Err(Error::Command { .. })));
    server.start_again().unwrap();
    assert_eq!(server.psql("SELECT 1").unwrap(), "1");
}

#[test]
fn a_frozen_server_does_not_answer_until_it_is_thawed() {
    let server = Server::start().unwrap();
    server.freeze().unwrap();
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| server.psql("SELECT 'thawed'").unwrap());
        // A frozen server shows only by psql not finishing.
        std::thread::sleep(Duration::from_millis(300));
        assert!(!answer.is_finished());
        server.thaw().unwrap();
        assert_eq!(answer.join().unwrap(), "thawed");
    });
    server.freeze().unwrap();
    server.restart(Stop::Immediate).unwrap();
    assert_eq!(server.psql("SELECT 1").unwrap(), "1");
}

#[test]
fn single_backends_are_terminated_frozen_and_killed() {
    let server = Server::start().unwrap();
    let session = || {
        let url = format!("{}?application_name=victim", server.url());
        std::process::Command::new("psql")
            .args(["-X", "-d", &url, "-c", "SELECT pg_sleep(60)"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let victim = || {
        let started = Instant::now();
        loop {
            if let [pid] = server.backends("victim").unwrap()[..] {
                return pid;
            }
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "the session did not appear"
            );
        }
    };
    let client = session();
    server.terminate_backend(victim()).unwrap();
    let output = client.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("terminating connection due to administrator command"));

    let mut client = session();
    let pid = victim();
    server.freeze_backend(pid).unwrap();
    server.terminate_backend(pid).unwrap();
    assert!(
        client.try_wait().unwrap().is_none(),
        "a frozen backend must not react to SIGTERM"
    );
    server.thaw_backend(pid).unwrap();
    client.wait().unwrap();

    let client = session();
    server.kill_backend(victim()).unwrap();
    client.wait_with_output().unwrap();
    let started = Instant::now();
    while server.psql("SELECT 1").is_err() {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "the server did not recover"
        );
    }
    assert!(server.log().contains("terminated by signal 9"));

    let us = std::process::id();
    assert!(matches!(server.terminate_backend(us), Err(Error::NotABackend { pid }) if pid == us));
}

#[test]
fn a_standby_replicates_and_can_be_promoted() {
    let primary = Server::builder().password("secret").start().unwrap();
    let standby = primary.standby().unwrap();
    primary
        .psql("CREATE TABLE t AS SELECT generate_series(1, 1000) AS id")
        .unwrap();
    primary.wait_for_standby(&standby).unwrap();
    assert_eq!(standby.psql("SELECT count(*) FROM t").unwrap(), "1000");
    assert!(
        standby
            .psql("INSERT INTO t VALUES (0)")
            .unwrap_err()
            .to_string()
            .contains("read-only")
    );
    primary.stop(Stop::Kill).unwrap();
    standby.promote().unwrap();
    standby.psql("INSERT INTO t VALUES (0)").unwrap();
}
