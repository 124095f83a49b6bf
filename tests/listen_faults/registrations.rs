//! Registrations: none lost unnoticed, none left behind.

use std::time::Duration;

use doorbell::listen::{ListenItem, ListenMultiplexer};
use throwaway_postgres::Server;

use crate::proxy::Proxy;
use crate::support::{marker, notification, within};

/// What `DISCARD ALL` of a pooler does: the session stays, its registrations go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_registrations_are_noticed_and_restored() {
    let server = Server::start().unwrap();
    let proxy = Proxy::before(server.port()).await;
    let mux = ListenMultiplexer::builder()
        .url(&proxy.url("postgres"))
        .heartbeat(Duration::from_millis(100), Duration::from_secs(5))
        .connect()
        .await
        .unwrap();
    let mut jobs = mux.subscribe("jobs").await.unwrap();
    proxy.inject("UNLISTEN *");
    marker(&mut jobs).await;
    server.psql("NOTIFY jobs, 'heard'").unwrap();
    assert_eq!(notification(&mut jobs).await.payload(), "heard");
    assert_eq!(mux.stats().losses, 1);
}

/// P6: whoever holds a subscription hears everything while others come and go by the thousand, and nothing is left of these.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_churn_loses_nothing_and_leaves_nothing() {
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
                // On the steady channel, on one of its own, and on one that two fight over; now awaited, now dropped half-way.
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
    // The server has nothing left either, once the lingering is over.
    within("the last UNLISTEN", async {
        while mux.stats().listens - mux.stats().unlistens != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(mux.stats().losses, 0);
}
