//! A proxy that understands enough of Postgres's protocol to misbehave between a client and its server: falls silent, cuts the
//! line, refuses a statement in the server's name, or says something to the server in the client's.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// What to do with a statement.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The client is told that the server refused it, by this SQLSTATE and message.
    Refuse(&'static str, &'static str),
    /// The connection is cut, without a word.
    Cut,
}

/// Decides about the statements that contain a text; each verdict is used once.
#[derive(Debug)]
struct Rule {
    containing: String,
    verdicts: VecDeque<Verdict>,
}

#[derive(Default)]
struct Script {
    rules: Vec<Rule>,
    seen: Vec<String>,
    /// Where to say something to the server of the latest connection.
    inject: Option<mpsc::UnboundedSender<String>>,
}

pub(crate) struct Proxy {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    silent: watch::Sender<bool>,
    connections: watch::Receiver<u64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts one before the server at this port of this machine.
    pub(crate) async fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(Script::default()));
        let (silent, hush) = watch::channel(false);
        let (count, connections) = watch::channel(0);
        let shared = script.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                    continue;
                };
                tokio::spawn(serve(client, server, shared.clone(), hush.clone()));
            }
        });
        Self {
            address,
            script,
            silent,
            connections,
            accepting,
        }
    }

    /// A connection string that leads through it.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}?sslmode=disable", self.address)
    }

    /// Uses these verdicts, one after the other, for statements that contain the text.
    pub(crate) fn on(&self, containing: &str, verdicts: impl IntoIterator<Item = Verdict>) {
        self.script.lock().unwrap().rules.push(Rule {
            containing: containing.to_owned(),
            verdicts: verdicts.into_iter().collect(),
        });
    }

    /// How many statements with this text the client has sent.
    pub(crate) fn seen(&self, containing: &str) -> usize {
        let script = self.script.lock().unwrap();
        script.seen.iter().filter(|sql| sql.contains(containing)).count()
    }

    /// Passes nothing on any more, in either direction; connections stay open.
    pub(crate) fn fall_silent(&self) {
        self.silent.send_replace(true);
    }

    /// Passes everything on again, also what has come meanwhile.
    pub(crate) fn speak_again(&self) {
        self.silent.send_replace(false);
    }

    /// Has the server of the latest connection run a statement that its client did not send; the client does not see the answer.
    pub(crate) fn inject(&self, sql: &str) {
        let script = self.script.lock().unwrap();
        script.inject.as_ref().unwrap().send(sql.to_owned()).unwrap();
    }

    /// How many connections have been made.
    pub(crate) fn connections(&self) -> u64 {
        *self.connections.borrow()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Whose answer the server gives next: the client's, or ours to swallow.
type Answers = Arc<Mutex<VecDeque<bool>>>;

async fn serve(client: TcpStream, server: TcpStream, script: Arc<Mutex<Script>>, silent: watch::Receiver<bool>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The first answer is that to the startup.
    let answers: Answers = Arc::new(Mutex::new([false].into()));
    let (inject, injected) = mpsc::unbounded_channel();
    script.lock().unwrap().inject = Some(inject);
    let (refuse, refusals) = mpsc::unbounded_channel();
    // Either direction's end cuts both.
    tokio::select! {
        _ = upstream(from_client, to_server, script, answers.clone(), injected, refuse, silent.clone()) => {}
        _ = downstream(from_server, to_client, answers, refusals, silent) => {}
    }
}

async fn upstream(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    script: Arc<Mutex<Script>>,
    answers: Answers,
    mut injected: mpsc::UnboundedReceiver<String>,
    refuse: mpsc::UnboundedSender<Vec<u8>>,
    mut silent: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut startup = vec![0; 4];
    client.read_exact(&mut startup).await?;
    server.write_all(&body(&mut client, startup).await?).await?;
    loop {
        let mut kind = [0];
        tokio::select! {
            sql = injected.recv() => {
                let Some(sql) = sql else { return Ok(()) };
                answers.lock().unwrap().push_back(true);
                server.write_all(&query(&sql)).await?;
                continue;
            }
            read = client.read_exact(&mut kind) => read?,
        };
        let mut message = vec![kind[0], 0, 0, 0, 0];
        client.read_exact(&mut message[1..]).await?;
        let message = body(&mut client, message).await?;
        // An error means that the test is over.
        let _ = silent.wait_for(|silent| !silent).await;
        if kind[0] != b'Q' {
            server.write_all(&message).await?;
            continue;
        }
        let sql = String::from_utf8_lossy(&message[5..message.len() - 1]).into_owned();
        let verdict = {
            let mut script = script.lock().unwrap();
            script.seen.push(sql.clone());
            let mut rules = script.rules.iter_mut().filter(|rule| sql.contains(&rule.containing));
            rules.find_map(|rule| rule.verdicts.pop_front())
        };
        match verdict {
            None => {
                answers.lock().unwrap().push_back(false);
                server.write_all(&message).await?;
            }
            Some(Verdict::Refuse(code, text)) => {
                let _ = refuse.send(refusal(code, text));
            }
            Some(Verdict::Cut) => return Ok(()),
        }
    }
}

async fn downstream(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    answers: Answers,
    mut refusals: mpsc::UnboundedReceiver<Vec<u8>>,
    mut silent: watch::Receiver<bool>,
) -> io::Result<()> {
    loop {
        let mut kind = [0];
        tokio::select! {
            refusal = refusals.recv() => {
                let Some(refusal) = refusal else { return Ok(()) };
                client.write_all(&refusal).await?;
                continue;
            }
            read = server.read_exact(&mut kind) => read?,
        };
        let mut message = vec![kind[0], 0, 0, 0, 0];
        server.read_exact(&mut message[1..]).await?;
        let message = body(&mut server, message).await?;
        let _ = silent.wait_for(|silent| !silent).await;
        // Notifications, notices and parameters belong to no answer.
        let swallow = !matches!(kind[0], b'A' | b'N' | b'S') && {
            let mut answers = answers.lock().unwrap();
            match kind[0] {
                b'Z' => answers.pop_front(),
                _ => answers.front().copied(),
            }
            .unwrap_or(false)
        };
        if !swallow {
            client.write_all(&message).await?;
        }
    }
}

/// Reads the rest of a message, whose head ends with its length.
async fn body(from: &mut OwnedReadHalf, mut message: Vec<u8>) -> io::Result<Vec<u8>> {
    let head = message.len();
    let length = u32::from_be_bytes(message[head - 4..].try_into().unwrap()) as usize;
    message.resize(head + length - 4, 0);
    from.read_exact(&mut message[head..]).await?;
    Ok(message)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    message.extend(body);
    message
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

/// An error, and that the server is ready for the next query.
fn refusal(code: &str, text: &str) -> Vec<u8> {
    let fields = format!("SERROR\0VERROR\0C{code}\0M{text}\0\0");
    let mut refusal = message(b'E', fields.as_bytes());
    refusal.extend(message(b'Z', b"I"));
    refusal
}
