//! The HTTP interface: the page, `GET /snapshot`, `GET /events` and `POST /burst`.
//!
//! `/events` sends server-sent events:
//!
//! | `event:` | `id:` | `data:` | then |
//! |---|---|---|---|
//! | `delta` | the position after the event | a cluster event | continues |
//! | `lagged` | none | `{"reason":"overrun","skipped":17}` or `{"reason":"restarted"}` | ends; take a new snapshot |
//!
//! A client gives its position in the header `Last-Event-ID`, which browsers send when they reconnect, or in the query parameter
//! `?after=`, because browsers cannot set a header on the first connection. The retained events after that position are sent at
//! once. Without a position, the client gets only new events.

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
type Reply<T> = Result<T, (StatusCode, String)>;

/// The maximum number of events in one burst.
const MAX_BURST: u64 = 1_000_000;

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
) -> Reply<impl IntoResponse> {
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

/// Returns the client's position. The header takes precedence: a reconnecting browser repeats the old query.
fn position(query: &[(String, String)], headers: &HeaderMap) -> Reply<Option<Position>> {
    let bad_request = |why: String| (StatusCode::BAD_REQUEST, why);
    let text = match headers.get("last-event-id") {
        Some(header) => Some(header.to_str().map_err(|error| bad_request(error.to_string()))?),
        None => {
            let after = query.iter().find(|(key, _)| key == "after");
            after.map(|(_, value)| value.as_str())
        }
    };
    text.map(|text| text.parse().map_err(bad_request)).transpose()
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
    event.json_data(data).expect("every frame serializes to JSON")
}

/// Emits many events at once, to make consoles lag.
async fn burst(State(service): Shared, Query(query): Query<Vec<(String, String)>>) -> Reply<Json<Value>> {
    let bad_request = |why: &str| (StatusCode::BAD_REQUEST, why.to_owned());
    let count = match query.iter().find(|(key, _)| key == "events") {
        Some((_, value)) => value.parse().map_err(|_| bad_request("events is not a number"))?,
        None => 4 * service.publisher.capacity() as u64,
    };
    if count > MAX_BURST {
        return Err(bad_request("too many events in one burst"));
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
