//! An HTTP client that reads server-sent events, for the tests.

use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Sends one request on its own connection.
pub(crate) async fn request(
    server: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    let socket = TcpStream::connect(server).await.expect("the server listens");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket))
        .await
        .expect("an HTTP connection");
    // Ends with the response, or with an error if the test drops the response.
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "console");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).expect("a valid request");
    sender.send_request(request).await.expect("a response")
}

pub(crate) async fn get(server: SocketAddr, path: &str) -> Response<Incoming> {
    request(server, Method::GET, path, &[]).await
}

pub(crate) async fn json(response: Response<Incoming>) -> Value {
    assert_eq!(response.status(), StatusCode::OK);
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a complete body")
        .to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}

/// One server-sent event.
#[derive(Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) kind: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

/// A stream of server-sent events.
pub(crate) struct Frames {
    body: Incoming,
    text: String,
}

impl Frames {
    /// Opens `/events` with a position in the `Last-Event-ID` header.
    pub(crate) async fn open(server: SocketAddr, last_event_id: Option<&str>) -> Self {
        let headers: Vec<_> = last_event_id.map(|id| ("last-event-id", id)).into_iter().collect();
        Self::from_response(request(server, Method::GET, "/events", &headers).await)
    }

    pub(crate) fn from_response(response: Response<Incoming>) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            body: response.into_body(),
            text: String::new(),
        }
    }

    /// Returns the next frame, or `None` if the server has ended the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let frame = parse(frame);
                self.text = rest.to_owned();
                match frame {
                    Some(frame) => return Some(frame),
                    // A keep-alive comment.
                    None => continue,
                }
            }
            let chunk = self.body.frame().await?.expect("no body error");
            let chunk = chunk.into_data().expect("no trailers");
            self.text
                .push_str(std::str::from_utf8(&chunk).expect("chunks of valid UTF-8"));
        }
    }
}

fn parse(text: &str) -> Option<Frame> {
    let field = |name: &str| {
        let mut values = text.lines().filter_map(|line| line.split_once(": "));
        values.find_map(|(field, value)| (field == name).then(|| value.to_owned()))
    };
    Some(Frame {
        kind: field("event")?,
        id: field("id"),
        data: serde_json::from_str(&field("data")?).expect("JSON"),
    })
}
