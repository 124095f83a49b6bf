//! What the tests of the clustered bus share.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod log_lines;
pub(crate) mod progress;
pub(crate) mod writer;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use doorbell::bus::{
    BusEvent, BusHealth, BusState, BusSubscription, DistributedBus, DistributedBusBuilder, FleetEvent,
};
use doorbell::listen::ListenMultiplexer;
use doorbell::store::PostgresStore;
use testkit::within::{LIMIT, within};
use tokio::time::timeout;

/// A sweep interval longer than any test: events arrive by notification, or by the sweep after an outage.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

/// The default `application_name` of a bus's listening connection.
pub(crate) const LISTENER: &str = "doorbell listen";

/// Runs blocking work without blocking other tasks.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// A store with its tables.
pub(crate) async fn store(url: &str) -> Arc<PostgresStore> {
    let store = PostgresStore::connect(url).await.unwrap();
    store.migrate().await.unwrap();
    Arc::new(store)
}

/// A bus without periodic sweeps, which detects a dead peer within 0.6 s.
pub(crate) fn builder(url: &str, store: &Arc<PostgresStore>) -> DistributedBusBuilder<FleetEvent> {
    DistributedBus::builder(store.clone())
        .url(url)
        .listen(listener(url))
        .sweep_interval(NEVER)
}

/// A listener that detects a dead peer within 0.6 s.
pub(crate) fn listener(url: &str) -> doorbell::listen::ListenBuilder {
    ListenMultiplexer::builder()
        .url(url)
        .heartbeat(Duration::from_millis(100), Duration::from_millis(500))
        .connect_timeout(Duration::from_secs(1))
        .subscribe_timeout(Duration::from_secs(2))
}

/// The bus of [`builder`], listening.
pub(crate) async fn bus(url: &str) -> DistributedBus {
    let store = store(url).await;
    builder(url, &store).connect().await.unwrap()
}

/// An event without a number.
pub(crate) fn note(stream: &str, text: &str) -> FleetEvent {
    FleetEvent::custom(stream, "note", text)
}

/// The next item.
pub(crate) async fn next(subscription: &mut BusSubscription) -> BusEvent {
    within("an item", subscription.recv())
        .await
        .expect("the subscription has ended")
}

/// The next item, which must be an event.
pub(crate) async fn event(subscription: &mut BusSubscription) -> Arc<FleetEvent> {
    match next(subscription).await {
        BusEvent::Event(event) => event,
        other => panic!("expected an event, got {other:?}"),
    }
}

/// Receives exactly these events of one stream, in order.
pub(crate) async fn expect(subscription: &mut BusSubscription, stream: &str, seqs: RangeInclusive<u64>) {
    for seq in seqs {
        let event = event(subscription).await;
        assert_eq!((event.agent_id.as_str(), event.seq), (stream, seq));
    }
}

/// Asserts that nothing can be received now.
pub(crate) fn expect_nothing(subscription: &mut BusSubscription) {
    let polled = subscription.poll_recv(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending), "{polled:?}");
}

/// Asserts that the subscription ends without another item.
pub(crate) async fn expect_end(subscription: &mut BusSubscription) {
    let end = within("the end", subscription.recv()).await;
    assert!(end.is_none(), "{end:?}");
}

/// Waits until the bus is in this state.
pub(crate) async fn until(bus: &DistributedBus, state: BusState) -> BusHealth {
    until_health(bus, &format!("{state:?}"), |health| health.state == state).await
}

/// Waits until the health of the bus meets a condition.
pub(crate) async fn until_health(bus: &DistributedBus, what: &str, is: impl Fn(&BusHealth) -> bool) -> BusHealth {
    let mut changes = bus.health_changes();
    let result = timeout(LIMIT, changes.wait_for(|health| is(health))).await;
    match result {
        Ok(health) => health.expect("the bus is there").clone(),
        Err(_) => panic!("{what} did not come within {LIMIT:?}: {:?}", bus.health()),
    }
}

/// The numbers of streams and subscriptions in the bus, from its `Debug` output.
pub(crate) fn held(bus: &DistributedBus) -> (usize, usize) {
    let text = format!("{bus:?}");
    let number = |name: &str| {
        let (_, rest) = text.split_once(&format!("{name}: ")).expect("a count");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    (number("streams"), number("subscriptions"))
}
