//! A database whose encoding lacks characters.

use doorbell::bus::{BusError, BusState, EventBus as _, StreamEvent as _};
use doorbell::store::StoreError;
use testkit::within::within;
use throwaway_postgres::Server;

use crate::bus_support::{bus, expect, expect_nothing, note, until};

/// A key with such a character harms nobody else: not the subscriptions that start with it, nor the notifications sent with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p48_a_key_that_the_server_cannot_store_concerns_its_stream_alone() {
    let server = Server::builder().encoding("LATIN1").locale("C").start().unwrap();
    let (here, there) = (bus(&server.url()).await, bus(&server.url()).await);
    let bell = "agent-\u{1f514}";
    let mut impossible = here.subscribe_from(bell, 0);
    let mut one = here.subscribe("grün");
    within("ready", impossible.ready()).await.unwrap();
    within("ready", one.ready()).await.unwrap();
    let mut all = here.subscribe_all_ready().await.unwrap();
    let refused = there.append_and_publish(note(bell, "hello")).await.unwrap_err();
    assert!(
        matches!(&refused, BusError::Store(StoreError::Encode { stream_key, .. }) if stream_key == bell),
        "{refused}"
    );
    for seq in 1..=3 {
        // The notification of an event that cannot exist comes first.
        there.publish(note(bell, "hello").with_seq(seq));
        there.append_and_publish(note("grün", "hello")).await.unwrap();
        expect(&mut one, "grün", seq..=seq).await;
        expect(&mut all, "grün", seq..=seq).await;
    }
    expect_nothing(&mut impossible);
    for bus in [&here, &there] {
        until(bus, BusState::Live).await;
        assert_eq!(bus.stats().failed_reads, 0);
    }
}
