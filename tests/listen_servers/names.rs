//! Channel names: everything that Postgres allows, taken literally.

use doorbell::listen::{InvalidChannel, ListenError, ListenMultiplexer};
use testkit::within::within;
use throwaway_postgres::Database;

use crate::listen_support::notification;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channel_names_are_taken_literally() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::connect(&database.url()).await.unwrap();
    let longest = "x".repeat(63);
    let names = [
        "x",
        "X",
        "Mixed Case",
        "quote\"quote",
        "\"",
        "it's",
        "a;b--c/*",
        "new\nline",
        "back\\slash",
        "$1",
        "\u{1f514}",
        "repo:foo:bar",
        &longest,
    ];
    let mut subscriptions = Vec::new();
    for name in names {
        subscriptions.push(mux.subscribe(name).await.unwrap());
    }
    for (name, subscription) in names.iter().zip(&mut subscriptions) {
        mux.notify(name, "hello").await.unwrap();
        let received = notification(subscription).await;
        assert_eq!((received.channel(), received.payload()), (*name, "hello"));
        assert!(
            subscription.try_recv().is_err(),
            "{name:?} received another channel's notification"
        );
    }
    // Postgres would truncate one more byte, to the name of another channel.
    let longer = "x".repeat(64);
    assert!(matches!(
        mux.subscribe(&longer).await,
        Err(ListenError::InvalidChannel(InvalidChannel::TooLong { bytes: 64 }))
    ));
    assert!(matches!(
        mux.notify(&longer, "").await,
        Err(ListenError::InvalidChannel(InvalidChannel::TooLong { bytes: 64 }))
    ));
    assert!(matches!(
        mux.subscribe("").await,
        Err(ListenError::InvalidChannel(InvalidChannel::Empty))
    ));
    assert!(matches!(
        mux.subscribe("a\0").await,
        Err(ListenError::InvalidChannel(InvalidChannel::Nul))
    ));
    assert_eq!(mux.stats().subscriptions, names.len());
}

/// More channels than fit into one batch, before and after a reconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_channels_are_restored_after_a_reconnect() {
    let database = Database::fresh().unwrap();
    let mux = ListenMultiplexer::builder()
        .url(&database.url())
        .channel_capacity(std::num::NonZeroUsize::new(8).unwrap())
        .start()
        .unwrap();
    let mut subscriptions: Vec<_> = (0..1000)
        .map(|n| mux.subscribe_lazy(&format!("channel {n}")).unwrap())
        .collect();
    for round in 1..=2 {
        for subscription in &subscriptions {
            within("ready", subscription.ready()).await.unwrap();
        }
        database
            .psql("SELECT count(pg_notify('channel ' || n, n::text)) FROM generate_series(0, 999) n")
            .unwrap();
        for (n, subscription) in subscriptions.iter_mut().enumerate() {
            assert_eq!(notification(subscription).await.payload(), n.to_string());
        }
        assert_eq!(mux.stats().listens, 1000 * round);
        if round == 1 {
            let pid = mux.health().server.unwrap().backend_pid;
            database.psql(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
            for subscription in &mut subscriptions {
                assert_eq!(crate::listen_support::reconnected(subscription).await.reconnects, 1);
            }
        }
    }
}
