//! A line to a server that can go dead, or lead to another one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections to a server of this machine.
pub(crate) struct Line {
    address: SocketAddr,
    /// How often everything was forgotten.
    forgotten: watch::Sender<u64>,
    /// The server's port.
    port: Arc<AtomicU16>,
    accepting: JoinHandle<()>,
}

impl Line {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (forgotten, forgetting) = watch::channel(0);
        let port = Arc::new(AtomicU16::new(port));
        let leads_to = port.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", leads_to.load(Ordering::SeqCst))).await else {
                    continue;
                };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                // Both directions are dead or neither is.
                tokio::spawn(forward(from_client, to_server, forgetting.clone()));
                tokio::spawn(forward(from_server, to_client, forgetting.clone()));
            }
        });
        Self {
            address,
            forgotten,
            port,
            accepting,
        }
    }

    /// The server's database `postgres`, over this line.
    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    /// New connections go to another server of this machine.
    pub(crate) fn lead_to(&self, port: u16) {
        self.port.store(port, Ordering::SeqCst);
    }

    /// Nothing comes through the connections of now any more, in either direction, and neither end is told.
    pub(crate) fn forget_all(&self) {
        self.forgotten.send_modify(|times| *times += 1);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut forgetting: watch::Receiver<u64>) {
    forgetting.mark_unchanged();
    let mut bytes = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            biased;
            _ = forgetting.changed() => {
                // What arrives is thrown away, so that the sender's side looks as if it were delivered.
                while from.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
                return std::future::pending().await; // not even the end is passed on
            }
            read = from.read(&mut bytes) => match read {
                Ok(n) if n > 0 => if to.write_all(&bytes[..n]).await.is_err() { return },
                _ => return,
            },
        }
    }
}
