//! A proxy in front of a PostgreSQL server on this machine. It can freeze, cut, delay and redirect connections, refuse
//! statements in the server's name, and send statements in the client's.
//!
//! Only for connections without TLS: it reads the messages.

mod forward;
mod message;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// What happens to a statement in place of its execution.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The client receives an error with this SQLSTATE and message; the server never sees the statement.
    Refuse(&'static str, &'static str),
    /// The connection is closed without a message.
    Cut,
}

/// Faults for the statements that contain a text; each is used once.
#[derive(Debug)]
struct Rule {
    containing: String,
    faults: VecDeque<Fault>,
}

#[derive(Default)]
struct Script {
    rules: Vec<Rule>,
    /// Every simple query that clients have sent, unless they are not recorded.
    statements: Vec<String>,
    unrecorded: bool,
    /// Statements for the server of the latest connection.
    inject: Option<mpsc::UnboundedSender<String>>,
}

impl Script {
    /// Records a statement, and returns the fault for it, if one is left.
    fn fault(&mut self, sql: String) -> Option<Fault> {
        let mut rules = self.rules.iter_mut().filter(|rule| sql.contains(&rule.containing));
        let fault = rules.find_map(|rule| rule.faults.pop_front());
        if !self.unrecorded {
            self.statements.push(sql);
        }
        fault
    }
}

/// How all connections are treated.
#[derive(Clone, Default)]
struct Treatment {
    frozen: bool,
    delay: Duration,
    /// Connections made before the latest increment swallow everything.
    black_holes: u64,
    /// Connections made before the latest increment are closed.
    cuts: u64,
}

/// A running proxy. Dropping it refuses further connections; those that exist continue.
///
/// Clients connect with [`url`](Self::url), or to [`address`](Self::address) without TLS.
pub struct Proxy {
    address: SocketAddr,
    server: watch::Sender<u16>,
    script: Arc<Mutex<Script>>,
    treatment: watch::Sender<Treatment>,
    connections: watch::Receiver<u64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of the server that listens on this port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// Returns an error if no port is free.
    pub async fn start(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let script = Arc::new(Mutex::new(Script::default()));
        let treatment = watch::Sender::new(Treatment::default());
        let server = watch::Sender::new(port);
        let (count, connections) = watch::channel(0);
        let (shared, treated, port) = (script.clone(), treatment.subscribe(), server.subscribe());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let port = *port.borrow();
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                    continue;
                };
                tokio::spawn(forward::forward(client, server, shared.clone(), treated.clone()));
            }
        });
        Ok(Self {
            address,
            server,
            script,
            treatment,
            connections,
            accepting,
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a connection string that leads through it, for the user `postgres`.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}?sslmode=disable", self.address)
    }

    /// Returns the number of connections that clients have made.
    pub fn connections(&self) -> u64 {
        *self.connections.borrow()
    }

    /// Leads new connections to the server on another port of 127.0.0.1.
    pub fn redirect(&self, port: u16) {
        self.server.send_replace(port);
    }

    /// Holds all messages back, in both directions, until [`thaw`](Self::thaw).
    pub fn freeze(&self) {
        self.treatment.send_modify(|treatment| treatment.frozen = true);
    }

    /// Passes all messages again, including those that were held back.
    pub fn thaw(&self) {
        self.treatment.send_modify(|treatment| treatment.frozen = false);
    }

    /// Delays each message by this time, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.treatment.send_modify(|treatment| treatment.delay = delay);
    }

    /// Closes the connections that exist.
    pub fn cut(&self) {
        self.treatment.send_modify(|treatment| treatment.cuts += 1);
    }

    /// Makes the connections that exist lose everything in both directions from now on. Neither end sees them close.
    pub fn black_hole(&self) {
        self.treatment.send_modify(|treatment| treatment.black_holes += 1);
    }

    /// Uses these faults, one after the other, for statements that contain the text. Affects simple queries only.
    pub fn on(&self, containing: &str, faults: impl IntoIterator<Item = Fault>) {
        self.script().rules.push(Rule {
            containing: containing.to_owned(),
            faults: faults.into_iter().collect(),
        });
    }

    /// Returns the number of statements with this text that clients have sent. Counts simple queries only.
    pub fn seen(&self, containing: &str) -> usize {
        let script = self.script();
        script.statements.iter().filter(|sql| sql.contains(containing)).count()
    }

    /// Records no statements from now on, so that memory stays bounded: [`seen`](Self::seen) finds only earlier ones.
    pub fn stop_recording(&self) {
        self.script().unrecorded = true;
    }

    /// Sends a statement to the server of the latest connection; its client does not see the answer.
    #[track_caller]
    pub fn inject(&self, sql: &str) {
        let script = self.script();
        let inject = script.inject.as_ref().expect("no client has connected");
        inject.send(sql.to_owned()).expect("the latest connection is closed");
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
