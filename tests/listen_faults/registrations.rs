//! Registrations: lost ones are restored, and none is left behind.

use std::time::Duration;

use doorbell::listen::{ListenItem, ListenMultiplexer};
use testkit::proxy::Proxy;
use testkit::within::within;
use throwaway_postgres::Server;

use crate::listen_support::{notification, reconnected};

/// The session loses its registrations, as by a pooler's `DISCARD ALL`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_registrations_are_detected_and_restored() {
    let server = Server::start().unwrap();
    let proxy = Proxy::start(server.port()).await.unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .heartbeat(Duration::from_millis(100), Duration::from_secs(5))
        .connect()
        .await
        .unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    proxy.inject("UNLISTEN *");
    reconnected(&mut jobs).await;
    server.psql("NOTIFY jobs, 'hello'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "hello");
    assert_eq!(mux.stats().disconnects, 1);
}

/// P6: a long-lived subscription receives everything while others come and go by the thousand and leave nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_subscription_churn_loses_nothing_and_leaves_nothing_behind() {
    const EVENTS: u32 = 2_000;
    const ROUNDS: u32 = 100;
    let server = Server::start().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&server.url())
        .unlisten_delay(Duration::from_millis(1))
        .application_name("churn")
        .channel_capacity(std::num::NonZeroUsize::new(4096).unwrap())
        .connect()
        .await
        .unwrap();
    let mut steady = mux.subscribe("steady").await.unwrap();
    let (done, stop) = tokio::sync::watch::channel(false);
    let mut churners = Vec::new();
    for churner in 0..4 {
        let (mux, stop) = (mux.clone(), stop.clone());
        churners.push(tokio::spawn(async move {
            let mut rounds = 0_u32;
            while !*stop.borrow() || rounds < ROUNDS {
                // On the steady channel, on one of its own, and on one shared by two tasks; awaited or dropped halfway.
                drop(mux.subscribe_lazy("steady").unwrap());
                let own = mux.subscribe_lazy(&format!("own {churner}")).unwrap();
                if rounds.is_multiple_of(8) {
                    own.ready().await.unwrap();
                    drop(mux.subscribe(&format!("shared {}", churner % 2)).await.unwrap());
                }
                drop(own);
                rounds += 1;
                tokio::task::yield_now().await;
            }
            rounds
        }));
    }
    for first in (0..EVENTS).step_by(100) {
        let sql = format!("SELECT pg_notify('steady', n::text) FROM generate_series({first}, {first} + 99) n");
        server.psql(&sql).unwrap();
    }
    for expected in 0..EVENTS {
        assert_eq!(notification(&mut steady).await.payload(), expected.to_string());
    }
    done.send_replace(true);
    let mut rounds = 0;
    for churner in churners {
        rounds += churner.await.unwrap();
    }
    assert!(rounds >= 4 * ROUNDS);
    assert!(!matches!(steady.try_recv(), Ok(ListenItem::Lagged(_))));
    let stats = mux.stats();
    assert_eq!((stats.channels, stats.subscriptions), (1, 1));
    // After `unlisten_delay`, the server has no other registration either.
    within("the last UNLISTEN", async {
        while mux.stats().listens - mux.stats().unlistens != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(mux.stats().disconnects, 0);
}
