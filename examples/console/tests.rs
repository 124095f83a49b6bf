//! Tests of the example console over HTTP, with a client that keeps its own copy of the cluster.

use std::net::SocketAddr;
use std::sync::Arc;

use doorbell::cluster::{ClusterEvent, Text};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;

mod client;
mod cluster;
mod service;
mod simulation;
mod web;

use client::{Frame, Frames, get, json, request};
use cluster::{Cluster, Peer, Shard};
use service::{Position, Service};
use simulation::Simulation;

/// Starts a server on a free port. It shares the test's thread, so it runs only while the test awaits.
async fn serve(capacity: usize) -> (Arc<Service>, SocketAddr) {
    let service = Arc::new(Service::new(capacity.try_into().unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = web::router(service.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (service, address)
}

fn connect(service: &Service, peer: &str) {
    service.change(|meta| ClusterEvent::PeerConnected {
        meta,
        peer: peer.into(),
    });
}

/// The state of a console.
#[derive(Default)]
struct Console {
    cluster: Cluster,
    as_of: String,
}

impl Console {
    /// Starts from a new snapshot.
    async fn snapshot(server: SocketAddr) -> Self {
        let snapshot = json(get(server, "/snapshot").await).await;
        Self {
            cluster: read_cluster(&snapshot["cluster"]),
            as_of: snapshot["as_of"].as_str().unwrap().to_owned(),
        }
    }

    /// Applies a delta, which must directly follow the last one.
    fn apply(&mut self, frame: Frame) {
        assert_eq!(frame.kind, "delta");
        let event: ClusterEvent = serde_json::from_value(frame.data).unwrap();
        let before: Position = self.as_of.parse().unwrap();
        let after = Position {
            seq: before.seq + 1,
            ..before
        };
        assert_eq!(event.meta().cluster_seq, after.seq, "no gap and no duplicate");
        assert_eq!(frame.id, Some(after.to_string()));
        self.cluster.apply(&event);
        self.as_of = after.to_string();
    }

    /// Applies frames up to the service's current state and compares.
    async fn catch_up(&mut self, frames: &mut Frames, service: &Service) {
        let (as_of, cluster) = service.snapshot();
        while self.as_of != as_of.to_string() {
            self.apply(frames.next().await.expect("the stream has not ended"));
        }
        assert_eq!(self.cluster, cluster);
    }
}

fn read_cluster(value: &Value) -> Cluster {
    let object = |value: &Value| value.as_object().unwrap().clone().into_iter();
    let text = |value: &Value| value.as_str().unwrap().into();
    let texts = |value: &Value| value.as_array().unwrap().iter().map(text).collect();
    Cluster {
        peers: object(&value["peers"])
            .map(|(name, peer)| {
                let peer = Peer {
                    address: text(&peer["address"]),
                    connected: peer["connected"].as_bool().unwrap(),
                    confirmations: peer["confirmations"].as_u64().unwrap() as u32,
                };
                (name.into(), peer)
            })
            .collect(),
        shards: object(&value["shards"])
            .map(|(name, shard)| {
                let shard = Shard {
                    owner: shard["owner"].as_str().map(Text::from),
                    failures: shard["failures"].as_u64().unwrap() as u32,
                };
                (name.into(), shard)
            })
            .collect(),
        workers: object(&value["workers"])
            .map(|(name, namespaces)| (name.into(), texts(&namespaces)))
            .collect(),
        supervisors: value["supervisors"].as_array().unwrap().iter().map(text).collect(),
    }
}

#[tokio::test]
async fn the_page_is_served() {
    let (_service, server) = serve(8).await;
    let page = get(server, "/").await;
    assert_eq!(page.status(), StatusCode::OK);
    assert!(
        page.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/html")
    );
}

#[tokio::test]
async fn a_snapshot_and_its_deltas_give_the_state() {
    let (service, server) = serve(4096).await;
    let mut simulation = Simulation::new(service.clone(), 7);
    let steps = |simulation: &mut Simulation| (0..300).for_each(|_| simulation.step());
    while simulation.is_starting() {
        simulation.step();
    }
    let mut console = Console::snapshot(server).await;
    // Emitted between the snapshot and the stream: retained, and sent at once.
    steps(&mut simulation);
    let mut frames = Frames::open(server, Some(&console.as_of)).await;
    console.catch_up(&mut frames, &service).await;
    steps(&mut simulation);
    console.catch_up(&mut frames, &service).await;
    assert!(service.publisher.as_of_seq() > 500, "almost every step emits an event");
    assert!(console.cluster.peers.len() > 3 && console.cluster.shards.len() > 10);
}

#[tokio::test]
async fn without_a_position_only_new_events_are_sent() {
    let (service, server) = serve(8).await;
    connect(&service, "before");
    let mut frames = Frames::open(server, None).await;
    connect(&service, "after");
    let frame = frames.next().await.unwrap();
    assert_eq!(frame.data["peer"], "after");
    assert_eq!(frame.id, Some(service.position(2).to_string()));
}

#[tokio::test]
async fn a_reconnect_resumes_after_the_last_event() {
    let (service, server) = serve(64).await;
    let mut console = Console::snapshot(server).await;
    let path = format!("/events?after={}", console.as_of);
    let mut frames = Frames::from_response(get(server, &path).await);
    connect(&service, "alpha");
    console.catch_up(&mut frames, &service).await;
    drop(frames);
    connect(&service, "beta");
    // Like a browser: the original URL, with the new position in the header.
    let headers = [("last-event-id", console.as_of.as_str())];
    let mut frames = Frames::from_response(request(server, Method::GET, &path, &headers).await);
    connect(&service, "gamma");
    console.catch_up(&mut frames, &service).await;
    assert_eq!(console.cluster.peers.len(), 3);
}

#[tokio::test]
async fn a_late_reconnect_gets_a_lagged_frame() {
    let (service, server) = serve(8).await;
    let console = Console::snapshot(server).await;
    for peer in 0..11 {
        connect(&service, &peer.to_string());
    }
    let mut frames = Frames::open(server, Some(&console.as_of)).await;
    let lagged = Frame {
        kind: "lagged".to_owned(),
        id: None,
        data: json!({ "reason": "overrun", "skipped": 3 }),
    };
    assert_eq!(frames.next().await, Some(lagged));
    assert_eq!(frames.next().await, None, "the stream ends after a lag");
    let mut console = Console::snapshot(server).await;
    let mut frames = Frames::open(server, Some(&console.as_of)).await;
    connect(&service, "omega");
    console.catch_up(&mut frames, &service).await;
    assert_eq!(console.cluster.peers.len(), 12);
}

#[tokio::test]
async fn a_lagging_console_gets_the_exact_skip_count_and_takes_a_new_snapshot() {
    let (service, server) = serve(8).await;
    let mut simulation = Simulation::new(service.clone(), 3);
    let mut console = Console::snapshot(server).await;
    let mut frames = Frames::open(server, Some(&console.as_of)).await;
    let mut lags = 0;
    for burst in [1, 8, 9, 3, 100, 5] {
        let before: Position = console.as_of.parse().unwrap();
        // Without an await, so the server cannot send in between.
        (0..burst).for_each(|_| simulation.step());
        let skipped = (service.publisher.as_of_seq() - before.seq).saturating_sub(8);
        if skipped > 0 {
            let frame = frames.next().await.unwrap();
            assert_eq!((frame.kind.as_str(), frame.id), ("lagged", None));
            assert_eq!(frame.data, json!({ "reason": "overrun", "skipped": skipped }));
            assert_eq!(frames.next().await, None);
            lags += 1;
            console = Console::snapshot(server).await;
            frames = Frames::open(server, Some(&console.as_of)).await;
        }
        console.catch_up(&mut frames, &service).await;
    }
    assert_eq!(lags, 2);
}

#[tokio::test]
async fn a_position_from_an_earlier_run_gets_a_restarted_frame() {
    let (service, server) = serve(8).await;
    connect(&service, "alpha");
    let earlier = Position {
        run: service.run - 1,
        seq: 0,
    };
    let mut frames = Frames::open(server, Some(&earlier.to_string())).await;
    let frame = frames.next().await.unwrap();
    assert_eq!(
        (frame.kind.as_str(), frame.data),
        ("lagged", json!({ "reason": "restarted" }))
    );
    assert_eq!(frames.next().await, None);
}

#[tokio::test]
async fn invalid_positions_are_rejected() {
    let (_service, server) = serve(8).await;
    for path in [
        "/events?after=",
        "/events?after=7",
        "/events?after=x-1",
        "/events?after=1-18446744073709551616",
    ] {
        assert_eq!(get(server, path).await.status(), StatusCode::BAD_REQUEST, "{path}");
    }
    let not_text = request(server, Method::GET, "/events", &[("last-event-id", "é")]).await;
    assert_eq!(not_text.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_burst_makes_consoles_lag() {
    let (service, server) = serve(8).await;
    let console = Console::snapshot(server).await;
    let burst = json(request(server, Method::POST, "/burst?events=20", &[]).await).await;
    assert_eq!(burst, json!({ "emitted": 20 }));
    let frame = Frames::open(server, Some(&console.as_of)).await.next().await.unwrap();
    assert_eq!(frame.data["skipped"], 12);
    json(request(server, Method::POST, "/burst", &[]).await).await;
    assert_eq!(service.publisher.as_of_seq(), 20 + 32);
    for path in ["/burst?events=x", "/burst?events=1000001"] {
        let refused = request(server, Method::POST, path, &[]).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn a_disconnected_client_is_detached() {
    let (service, server) = serve(8).await;
    let mut frames = Frames::open(server, None).await;
    connect(&service, "alpha");
    frames.next().await.unwrap();
    assert_eq!(service.publisher.subscriber_count(), 1);
    drop(frames);
    while service.publisher.subscriber_count() > 0 {
        tokio::task::yield_now().await;
    }
}
