//! Which process id the other end gave itself when the connection was made.
//!
//! A pooler answers with an id of its own making, so it differs from what `pg_backend_pid()` says: that is how one is recognised.
//! tokio-postgres keeps the id to itself, but writes it into cancel requests; so we let it write one, into memory, and never
//! send it.

use core::future::{Ready, ready};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// A cancel request: its length, a code, the process id, a key; each of four bytes.
const CANCEL_REQUEST_BYTES: usize = 16;

/// The process id by which the server, or a pooler, introduced itself.
pub(super) async fn announced_pid(client: &Client) -> Option<i32> {
    let written = Arc::new(Mutex::new(Vec::new()));
    let sink = Sink(written.clone());
    client.cancel_token().cancel_query_raw(sink, Pretend).await.ok()?;
    let written = written.lock();
    let request = written.last_chunk::<CANCEL_REQUEST_BYTES>()?;
    let pid: [u8; 4] = request[8..12].try_into().ok()?;
    Some(i32::from_be_bytes(pid))
}

/// Keeps what is written; agrees to everything when read, such as to a request for encryption.
struct Sink(Arc<Mutex<Vec<u8>>>);

impl AsyncRead for Sink {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0 {
            buffer.put_slice(b"S");
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sink {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.lock().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for Sink {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// Encryption that does nothing, since nothing leaves the process.
struct Pretend;

impl TlsConnect<Sink> for Pretend {
    type Stream = Sink;
    type Error = io::Error;
    type Future = Ready<io::Result<Sink>>;

    fn connect(self, stream: Sink) -> Self::Future {
        ready(Ok(stream))
    }
}
