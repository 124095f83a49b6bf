//! Tests the proxy in front of a server that answers every query with ReadyForQuery.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Fault, Proxy, message};

const READY: &[u8] = b"Z\0\0\0\x05I";

/// Long enough to check that nothing arrives.
const A_WHILE: Duration = Duration::from_millis(100);

async fn server() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answer(client));
        }
    });
    port
}

async fn answer(mut client: TcpStream) -> io::Result<()> {
    message::startup(&mut client).await?;
    client.write_all(READY).await?;
    loop {
        let kind = client.read_u8().await?;
        message::after_kind(kind, &mut client).await?;
        client.write_all(READY).await?;
    }
}

struct Client(TcpStream);

impl Client {
    async fn connect(proxy: &Proxy) -> Self {
        let mut connection = TcpStream::connect(proxy.address()).await.unwrap();
        connection.write_all(b"\0\0\0\x08\0\x03\0\0").await.unwrap();
        let mut client = Self(connection);
        assert_eq!(client.reply().await.as_deref(), Some(READY));
        client
    }

    async fn send(&mut self, sql: &str) {
        self.0.write_all(&message::query(sql)).await.unwrap();
    }

    /// Returns the next message, or `None` at the end.
    async fn reply(&mut self) -> Option<Vec<u8>> {
        let kind = self.0.read_u8().await.ok()?;
        message::after_kind(kind, &mut self.0).await.ok()
    }

    async fn silent(&mut self) -> bool {
        timeout(A_WHILE, self.reply()).await.is_err()
    }
}

async fn proxy() -> Proxy {
    Proxy::start(server().await).await.unwrap()
}

#[tokio::test]
async fn frozen_messages_arrive_after_the_thaw() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.freeze();
    client.send("SELECT 1").await;
    assert!(client.silent().await);
    proxy.thaw();
    assert_eq!(client.reply().await.as_deref(), Some(READY));
    assert_eq!((proxy.seen("SELECT"), proxy.connections()), (1, 1));
}

#[tokio::test]
async fn delayed_messages_arrive_later() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.delay(A_WHILE);
    let begun = Instant::now();
    client.send("SELECT 1").await;
    assert_eq!(client.reply().await.as_deref(), Some(READY));
    assert!(begun.elapsed() >= 2 * A_WHILE, "in both directions");
}

#[tokio::test]
async fn a_cut_closes_the_connections_that_exist() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.cut();
    assert_eq!(client.reply().await, None);
    let mut client = Client::connect(&proxy).await;
    client.send("SELECT 1").await;
    assert_eq!(client.reply().await.as_deref(), Some(READY));
}

#[tokio::test]
async fn a_black_hole_swallows_everything_and_stays_open() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.black_hole();
    client.send("SELECT 1").await;
    assert!(client.silent().await);
    proxy.redirect(server().await);
    Client::connect(&proxy).await;
}

#[tokio::test]
async fn faults_apply_once_to_the_statements_that_contain_their_text() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.on("LISTEN", [Fault::Refuse("53200", "out of memory"), Fault::Cut]);
    client.send("LISTEN a").await;
    assert_eq!(client.reply().await.unwrap()[0], b'E');
    assert_eq!(client.reply().await.as_deref(), Some(READY));
    client.send("SELECT 1").await;
    assert_eq!(client.reply().await.as_deref(), Some(READY));
    client.send("LISTEN b").await;
    assert_eq!(client.reply().await, None);
}

#[tokio::test]
async fn the_client_sees_no_answer_to_an_injected_statement() {
    let proxy = proxy().await;
    let mut client = Client::connect(&proxy).await;
    proxy.inject("UNLISTEN *");
    assert!(client.silent().await);
    client.send("SELECT 1").await;
    assert_eq!(client.reply().await.as_deref(), Some(READY));
    // A later connection does not disturb this one.
    let _later = Client::connect(&proxy).await;
    client.send("SELECT 1").await;
    assert_eq!(client.reply().await.as_deref(), Some(READY));
}
