//! The messages of PostgreSQL's protocol, as far as the proxy reads and writes them.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Reads the rest of a startup message, which has a length and no kind.
pub(super) async fn startup(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut message = vec![0; 4];
    from.read_exact(&mut message).await?;
    body(from, message).await
}

/// Reads the rest of a message of this kind.
pub(super) async fn after_kind(kind: u8, from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut message = vec![kind, 0, 0, 0, 0];
    from.read_exact(&mut message[1..]).await?;
    body(from, message).await
}

/// Reads the rest of a message whose head ends with its length.
async fn body(from: &mut (impl AsyncRead + Unpin), mut message: Vec<u8>) -> io::Result<Vec<u8>> {
    let head = message.len();
    let length = u32::from_be_bytes(message[head - 4..].try_into().expect("four bytes")) as usize;
    // The length includes itself.
    message.resize(head + length - 4, 0);
    from.read_exact(&mut message[head..]).await?;
    Ok(message)
}

/// Returns the text of a simple query.
pub(super) fn sql(query: &[u8]) -> String {
    String::from_utf8_lossy(&query[5..query.len() - 1]).into_owned()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend(u32::try_from(body.len() + 4).expect("a short body").to_be_bytes());
    message.extend(body);
    message
}

/// Creates a simple query.
pub(super) fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

/// Creates an error, followed by ReadyForQuery.
pub(super) fn refusal(code: &str, text: &str) -> Vec<u8> {
    let fields = format!("SERROR\0VERROR\0C{code}\0M{text}\0\0");
    let mut refusal = message(b'E', fields.as_bytes());
    refusal.extend(message(b'Z', b"I"));
    refusal
}
