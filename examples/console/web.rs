//! The service on the web: the page, `GET /snapshot`, `GET /events` and `POST /burst`.
//!
//! `/events` are server-sent events:
//!
//! | `event:` | `id:` | `data:` | then |
//! |---|---|---|---|
//! | `delta` | the position after it | a cluster event | goes on |
//! | `lagged` | none | `{"reason":"overrun","skipped":17}` or `{"reason":"restarted"}` | ends: take a new snapshot |
//!
//! A client names the position from which it goes on by the header `Last-Event-ID`, which browsers send when they reconnect, or
//! by the query `?after=`, since they cannot set a header when they connect first. What is still kept from there on is sent at once.
//! Without a position it gets what happens from now on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Json};
use axum::routing::{get, post};
use doorbell::cluster::{ClusterEvent, ClusterStreamLagged};
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};

use crate::service::{Position, Service};

type Shared = State<Arc<Service>>;
type Answer<T> = Result<T, (StatusCode, String)>;

/// More at once is refused.
const LARGEST_BURST: u64 = 1_000_000;

pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/snapshot", get(snapshot))
        .route("/events", get(events))
        .route("/burst", post(burst))
        .with_state(service)
}

async fn snapshot(State(service): Shared) -> Json<Value> {
    let (as_of, cluster) = service.snapshot();
    Json(json!({
        "as_of": as_of.to_string(),
        "capacity": service.publisher.capacity(),
        "cluster": cluster.to_json(),
    }))
}

async fn events(
    State(service): Shared,
    Query(query): Query<Vec<(String, String)>>,
    headers: HeaderMap,
) -> Answer<impl IntoResponse> {
    let frames = match position(&query, &headers)? {
        Some(position) if position.run != service.run => {
            let restarted = json!({ "reason": "restarted" });
            stream::iter([frame("lagged", &restarted)]).boxed()
        }
        Some(position) => to_frames(&service, service.publisher.resume(position.seq)),
        None => to_frames(&service, service.publisher.subscribe(0)),
    };
    let alive = KeepAlive::new().interval(Duration::from_secs(10));
    Ok(Sse::new(frames.map(Ok::<_, Infallible>)).keep_alive(alive))
}

/// The position that the client names; a reconnect tells the newest in the header, beside the old one in the query.
fn position(query: &[(String, String)], headers: &HeaderMap) -> Answer<Option<Position>> {
    let refuse = |why: String| (StatusCode::BAD_REQUEST, why);
    let text = match headers.get("last-event-id") {
        Some(header) => Some(header.to_str().map_err(|error| refuse(error.to_string()))?),
        None => {
            let after = query.iter().find(|(key, _)| key == "after");
            after.map(|(_, value)| value.as_str())
        }
    };
    text.map(|text| text.parse().map_err(refuse)).transpose()
}

fn to_frames(
    service: &Service,
    events: BoxStream<'static, Result<ClusterEvent, ClusterStreamLagged>>,
) -> BoxStream<'static, Event> {
    let run = service.run;
    events
        .map(move |item| match item {
            Ok(event) => {
                let seq = event.meta().cluster_seq;
                frame("delta", &event).id(Position { run, seq }.to_string())
            }
            Err(lagged) => frame("lagged", &json!({ "reason": "overrun", "skipped": lagged.skipped })),
        })
        .boxed()
}

fn frame(kind: &str, data: &impl serde::Serialize) -> Event {
    let event = Event::default().event(kind);
    event.json_data(data).expect("all data can be written as JSON")
}

/// Emits many events at once, so that consoles which do not keep up can be seen to lag.
async fn burst(State(service): Shared, Query(query): Query<Vec<(String, String)>>) -> Answer<Json<Value>> {
    let refuse = |why: &str| (StatusCode::BAD_REQUEST, why.to_owned());
    let count = match query.iter().find(|(key, _)| key == "events") {
        Some((_, value)) => value.parse().map_err(|_| refuse("events is not a number"))?,
        None => 4 * service.publisher.capacity() as u64,
    };
    if count > LARGEST_BURST {
        return Err(refuse("too many events"));
    }
    for index in 0..count {
        service.change(|meta| ClusterEvent::Custom {
            meta,
            name: "burst".into(),
            data: index.to_string().into(),
        });
    }
    Ok(Json(json!({ "emitted": count })))
}
