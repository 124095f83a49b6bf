//! What the bus counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that any thread adds to.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        // Relaxed: a figure for people. Nothing is read by what it says.
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as in `add`.
        self.0.load(Ordering::Relaxed)
    }
}

/// The histogram of how long events take from being appended to going out.
#[cfg(all(feature = "metrics", feature = "postgres"))]
pub(crate) const APPEND_TO_DELIVERY: &str = "doorbell_bus_append_to_delivery_seconds";

macro_rules! counters {
    ($(#[doc = $doc:literal] $name:ident $metric:literal,)*) => {
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// What a bus has done since it was made. Each figure only grows; they are read one after another, so they need not fit
        /// together while the bus is at work.
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

            /// The figures, with the names under which the `metrics` crate's recorders get them.
            #[cfg(all(feature = "metrics", feature = "postgres"))]
            pub(crate) fn report(&self) {
                $(metrics::counter!($metric).absolute(self.$name.get());)*
            }

            /// What the figures mean, for recorders that show it.
            #[cfg(all(feature = "metrics", feature = "postgres"))]
            pub(crate) fn describe() {
                $(metrics::describe_counter!($metric, metrics::Unit::Count, $doc.trim_start());)*
                metrics::describe_histogram!(
                    APPEND_TO_DELIVERY,
                    metrics::Unit::Seconds,
                    "From an event's append, by the server's clock, to its delivery, by this machine's."
                );
            }
        }
    };
}

counters! {
    /// Events that went out to subscriptions, each once, however many there are.
    events_delivered "doorbell_bus_events_delivered_total",
    /// Of these, events that this process had appended itself, and that were not read back.
    events_local "doorbell_bus_events_local_total",
    /// Reads of the store for delivery; one read may serve many streams and all of their subscriptions.
    reads "doorbell_bus_reads_total",
    /// Reads of the store for subscriptions that were behind: slow ones, and those that start in the past.
    replay_reads "doorbell_bus_replay_reads_total",
    /// Reads of the store that failed and were tried again.
    failed_reads "doorbell_bus_failed_reads_total",
    /// Notifications sent.
    notifications_sent "doorbell_bus_notifications_sent_total",
    /// Events that were announced by them.
    events_announced "doorbell_bus_events_announced_total",
    /// Events that were announced by another event's pointer, since both were waiting.
    notifications_coalesced "doorbell_bus_notifications_coalesced_total",
    /// Announcements that were given up, since the server could not be reached in time or too many were waiting. A sweep finds their events.
    notifications_dropped "doorbell_bus_notifications_dropped_total",
    /// Notifications heard.
    notifications_received "doorbell_bus_notifications_received_total",
    /// Pointers heard that nobody here is interested in.
    notifications_ignored "doorbell_bus_notifications_ignored_total",
    /// Pointers that could not be read, or announced what the store does not have.
    notifications_invalid "doorbell_bus_notifications_invalid_total",
    /// Sweeps: searches for events whose doorbell was not heard.
    sweeps "doorbell_bus_sweeps_total",
    /// Streams that a sweep found to be further than the doorbells said.
    missed_recovered "doorbell_bus_missed_recovered_total",
    /// Streams whose history was found to be another one.
    rewinds "doorbell_bus_rewinds_total",
    /// Events that were published without being in the store: without a number, or with one that the stream has not reached.
    unpersisted "doorbell_bus_unpersisted_total",
    /// Times that a subscription fell behind what is kept in memory.
    lags "doorbell_bus_lags_total",
}
