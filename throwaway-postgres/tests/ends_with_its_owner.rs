//! A server ends, and leaves nothing behind, however its owner ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use throwaway_postgres::Server;

/// The program that holds a server until its standard input ends.
struct Owner {
    process: Child,
    /// The server's first process, and its directory.
    server: u32,
    home: PathBuf,
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
        let directory = Command::new("psql")
            .args(["-XAt", "-d", url.trim(), "-c", "SHOW data_directory"])
            .output()
            .unwrap();
        let data = PathBuf::from(String::from_utf8(directory.stdout).unwrap().trim());
        let home = data.parent().unwrap().to_owned();
        let pid_file = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
        let server = pid_file.lines().next().unwrap().parse().unwrap();
        Self { process, server, home }
    }

    fn assert_gone(&self) {
        let begun = Instant::now();
        while self.home.exists() || Path::new(&format!("/proc/{}/cwd", self.server)).read_link().is_ok() {
            assert!(
                begun.elapsed() < Duration::from_secs(15),
                "{} is still there",
                self.home.display()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn when_it_returns() {
    let mut owner = Owner::start();
    drop(owner.process.stdin.take());
    assert!(owner.process.wait().unwrap().success());
    assert!(!owner.home.exists());
    owner.assert_gone();
}

#[test]
fn when_it_is_killed() {
    let mut owner = Owner::start();
    owner.process.kill().unwrap();
    owner.process.wait().unwrap();
    owner.assert_gone();
}

#[test]
fn when_it_is_killed_while_the_server_is_frozen() {
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
fn servers_live_side_by_side() {
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| Server::start().unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let homes: Vec<PathBuf> = servers.iter().map(Server::socket_directory).collect();
    for server in &servers {
        assert_eq!(
            server.psql("SELECT inet_server_port()").unwrap(),
            server.port().to_string()
        );
    }
    drop(servers);
    assert!(homes.iter().all(|home| !home.exists()));
}
