//! The counters of the bus.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that any thread may increase.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        // Relaxed: the figure is only displayed. No other access depends on it.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// The histogram of the time from an event's append to its delivery.
#[cfg(all(feature = "metrics", feature = "postgres"))]
pub(crate) const APPEND_TO_DELIVERY: &str = "doorbell_bus_append_to_delivery_seconds";

macro_rules! counters {
    ($(#[doc = $doc:literal] $name:ident $metric:literal,)*) => {
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// The counters of a bus since it was created.
        ///
        /// No counter ever decreases. They are read one after another, so a snapshot of a busy bus is not consistent.
        ///
        /// ```
        /// use doorbell::bus::{EventBus, FleetEvent, LocalBus};
        ///
        /// let bus = LocalBus::new();
        /// let _subscription = bus.subscribe_all();
        /// bus.publish(FleetEvent::custom("agent-1", "note", "hello"));
        /// assert_eq!(bus.stats().events_delivered, 1);
        /// ```
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub struct BusStats {
            $(#[doc = $doc] pub $name: u64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> BusStats {
                BusStats { $($name: self.$name.get(),)* }
            }

            /// Reports the counters to the recorder of the `metrics` crate.
            #[cfg(all(feature = "metrics", feature = "postgres"))]
            pub(crate) fn report(&self) {
                $(metrics::counter!($metric).absolute(self.$name.get());)*
            }

            /// Describes the counters to the recorder of the `metrics` crate.
            #[cfg(all(feature = "metrics", feature = "postgres"))]
            pub(crate) fn describe() {
                $(metrics::describe_counter!($metric, metrics::Unit::Count, $doc.trim_start());)*
                metrics::describe_histogram!(
                    APPEND_TO_DELIVERY,
                    metrics::Unit::Seconds,
                    "Time from an event's append, by the server's clock, to its delivery, by this machine's clock."
                );
            }
        }
    };
}

counters! {
    /// The number of delivered events, each counted once regardless of how many subscriptions received it.
    events_delivered "doorbell_bus_events_delivered_total",
    /// The number of delivered events that this process appended itself and did not read from the store.
    events_local "doorbell_bus_events_local_total",
    /// The number of reads of the store for live delivery; one read may cover many streams, and serves all their subscriptions.
    reads "doorbell_bus_reads_total",
    /// The number of reads of the store for subscriptions that were slow or started in the past.
    replay_reads "doorbell_bus_replay_reads_total",
    /// The number of operations on the store that failed and were repeated: live reads, starts, sweeps and reads of history.
    failed_reads "doorbell_bus_failed_reads_total",
    /// The number of notifications that this process sent.
    notifications_sent "doorbell_bus_notifications_sent_total",
    /// The number of events that were queued for a notification.
    events_queued "doorbell_bus_events_queued_total",
    /// The number of queued events that were merged into the pending range of their stream.
    notifications_coalesced "doorbell_bus_notifications_coalesced_total",
    /// The number of queued ranges that were discarded because too many were pending; a request for a sweep is sent in their place.
    notifications_dropped "doorbell_bus_notifications_dropped_total",
    /// The number of notifications that this process received.
    notifications_received "doorbell_bus_notifications_received_total",
    /// The number of received ranges of streams that have no subscription in this process.
    notifications_ignored "doorbell_bus_notifications_ignored_total",
    /// The number of received ranges that could not be parsed, or that named events that the store does not have.
    notifications_invalid "doorbell_bus_notifications_invalid_total",
    /// The number of sweeps: searches of the store for events whose notification was lost.
    sweeps "doorbell_bus_sweeps_total",
    /// The number of streams in which a sweep found events that no notification had named.
    missed_recovered "doorbell_bus_missed_recovered_total",
    /// The number of streams whose history was found to be replaced by another one.
    rewinds "doorbell_bus_rewinds_total",
    /// The number of events that `publish` dropped because they were not in the store.
    unpersisted "doorbell_bus_unpersisted_total",
    /// The number of times a subscription fell behind the events in memory.
    lags "doorbell_bus_lags_total",
}
