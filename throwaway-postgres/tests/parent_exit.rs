//! A server ends with its owner, however the owner ends, and leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use throwaway_postgres::Server;

/// The program that keeps a server until its standard input ends.
struct Owner {
    process: Child,
    /// The server's first process.
    server: u32,
    /// The server's directory.
    directory: PathBuf,
}

impl Owner {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_throwaway-postgres"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().unwrap())
            .read_line(&mut url)
            .unwrap();
        let output = Command::new("psql")
            .args(["-XAt", "-d", url.trim(), "-c", "SHOW data_directory"])
            .output()
            .unwrap();
        let data = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        let directory = data.parent().unwrap().to_owned();
        let pid_file = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
        let server = pid_file.lines().next().unwrap().parse().unwrap();
        Self {
            process,
            server,
            directory,
        }
    }

    fn assert_gone(&self) {
        let started = Instant::now();
        while self.directory.exists() || Path::new(&format!("/proc/{}/cwd", self.server)).read_link().is_ok() {
            assert!(
                started.elapsed() < Duration::from_secs(15),
                "{} or its server still exists",
                self.directory.display()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_server_ends_when_its_owner_returns() {
    let mut owner = Owner::start();
    drop(owner.process.stdin.take());
    assert!(owner.process.wait().unwrap().success());
    assert!(!owner.directory.exists());
    owner.assert_gone();
}

#[test]
fn the_server_ends_when_its_owner_is_killed() {
    let mut owner = Owner::start();
    owner.process.kill().unwrap();
    owner.process.wait().unwrap();
    owner.assert_gone();
}

#[test]
fn a_frozen_server_ends_when_its_owner_is_killed() {
    let mut owner = Owner::start();
    assert!(
        Command::new("kill")
            .args(["-STOP", &owner.server.to_string()])
            .status()
            .unwrap()
            .success()
    );
    owner.process.kill().unwrap();
    owner.process.wait().unwrap();
    owner.assert_gone();
}

#[test]
fn servers_run_concurrently_and_are_removed() {
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| Server::start().unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let directories: Vec<PathBuf> = servers.iter().map(Server::socket_directory).collect();
    for server in &servers {
        assert_eq!(
            server.psql("SELECT inet_server_port()").unwrap(),
            server.port().to_string()
        );
    }
    drop(servers);
    assert!(directories.iter().all(|directory| !directory.exists()));
}
