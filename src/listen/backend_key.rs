//! Determines the backend's process id as announced when the connection was opened.
//!
//! A pooler announces its own id, which differs from `pg_backend_pid()`; this is how a pooler is detected. tokio-postgres does
//! not expose the announced id, but writes it into cancel requests. So this module lets it write one into memory, and never sends
//! it.

use core::future::{Ready, ready};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// A cancel request has four fields of four bytes each: length, code, process id and key.
const CANCEL_REQUEST_BYTES: usize = 16;

/// Returns the process id that the server, or a pooler, announced.
pub(super) async fn announced_pid(client: &Client) -> Option<i32> {
    let written = Arc::new(Mutex::new(Vec::new()));
    let sink = Sink(written.clone());
    client.cancel_token().cancel_query_raw(sink, NoEncryption).await.ok()?;
    let written = written.lock();
    let request = written.last_chunk::<CANCEL_REQUEST_BYTES>()?;
    let pid: [u8; 4] = request[8..12].try_into().ok()?;
    Some(i32::from_be_bytes(pid))
}

/// Stores what is written, and answers `S` (accepted) to a request for encryption.
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

/// A TLS connector that does not encrypt, because nothing leaves the process.
struct NoEncryption;

impl TlsConnect<Sink> for NoEncryption {
    type Stream = Sink;
    type Error = io::Error;
    type Future = Ready<io::Result<Sink>>;

    fn connect(self, stream: Sink) -> Self::Future {
        ready(Ok(stream))
    }
}
