//! Adds subscriptions to the hub and removes them.

use std::collections::HashMap;
use std::sync::Arc;

use super::lag_accounting::LagAccounting;
use super::start_signal::{StartPosition, StartSignal};
use super::stream::{StreamIndex, StreamRef};
use super::stream_table::Baseline;
use super::{Hub, RingItem, Work};
use crate::bus::BusError;
use crate::ring::{Builder, OnLag, Publisher, Subscriber};

/// The hub's part of a new subscription.
pub(crate) struct Attached<E: Send + Sync + 'static> {
    pub(crate) feed: Subscriber<RingItem<E>>,
    pub(crate) start: StartSignal,
    /// The stream, or `None` for a subscription to all.
    pub(crate) stream: Option<StreamRef>,
    /// When the subscription was added, by the table's clock.
    pub(crate) attached_at: u64,
    /// The number of the last rewind before the subscription.
    pub(crate) last_rewind: u64,
    /// For a subscription to all: the [surplus](Hub::surplus_before) before its first item.
    pub(crate) surplus: i128,
}

impl<E: Send + Sync + 'static> Hub<E> {
    /// Adds a subscription to one stream. It starts when the store's high-water mark is known, or at once if the stream has
    /// subscriptions that have started. With `after`, it always asks the store, which may hold events that were not delivered here, or
    /// lack the event that `after` names.
    ///
    /// # Errors
    ///
    /// Returns [`BusError::Closed`] if the hub is closed.
    pub(crate) fn attach_one(&self, key: &str, after: Option<u64>) -> Result<Attached<E>, BusError> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(BusError::Closed);
        }
        let index = match table.by_key.get(key) {
            Some(&index) => index,
            None => {
                let key: Arc<str> = key.into();
                let head = match &mut table.all.baseline {
                    Baseline::Complete(untracked) => Some(untracked.remove(&key).unwrap_or_default()),
                    Baseline::Missing | Baseline::Unknown => None,
                };
                let index = table.insert(key, head);
                if head.is_none() {
                    table.unstarted.push(index);
                }
                index
            }
        };
        let stream = table.stream(index);
        if stream.cursor.is_some() && after.is_some() && stream.starting.is_empty() {
            table.unstarted.push(index);
        }
        let started_at = table.start_now();
        let attached_at = started_at.tick;
        let stream = table.stream_mut(index);
        stream.subscriptions += 1;
        let feed = subscribe(self.settings.stream_capacity, &mut stream.feed);
        let start = match stream.cursor {
            Some(cursor) if after.is_none() => {
                stream.started_at = Some(started_at);
                StartSignal::already(Ok(StartPosition::One(cursor)))
            }
            _ => {
                let signal = StartSignal::unset();
                stream.starting.push(signal.clone());
                signal
            }
        };
        let stream = stream.reference(index);
        let must_wake = !table.unstarted.is_empty();
        let last_rewind = table.last_rewind();
        drop(table);
        if must_wake {
            (self.wakeup)(Work::Read);
        }
        Ok(Attached {
            feed,
            start,
            stream: Some(stream),
            attached_at,
            last_rewind,
            surplus: 0,
        })
    }

    /// Adds a subscription to all streams.
    ///
    /// # Errors
    ///
    /// Returns [`BusError::Closed`] if the hub is closed.
    pub(crate) fn attach_all(&self) -> Result<Attached<E>, BusError> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(BusError::Closed);
        }
        table.all.subscriptions += 1;
        let is_new = table.all.feed.is_none();
        let feed = subscribe(self.settings.all_capacity, &mut table.all.feed);
        if is_new {
            table.all.lag_accounting = LagAccounting::starting_at(feed.position());
        }
        let surplus = table.all.lag_accounting.surplus_before(feed.position());
        let attached_at = table.tick();
        let must_wake = matches!(table.all.baseline, Baseline::Missing);
        let start = if must_wake {
            let signal = StartSignal::unset();
            table.all.starting.push(signal.clone());
            signal
        } else {
            table.all.started_at = Some(table.start_now());
            StartSignal::already(Ok(StartPosition::All(table.snapshot())))
        };
        let last_rewind = table.last_rewind();
        drop(table);
        if must_wake {
            (self.wakeup)(Work::Read);
        }
        Ok(Attached {
            feed,
            start,
            stream: None,
            attached_at,
            last_rewind,
            surplus,
        })
    }

    /// Removes a subscription to `index`, or to all streams.
    pub(crate) fn detach(&self, index: Option<StreamIndex>, start: &StartSignal) {
        let mut table = self.table.lock();
        let starting = match index {
            Some(index) => {
                let stream = table.stream_mut(index);
                stream.subscriptions -= 1;
                &mut stream.starting
            }
            None => {
                table.all.subscriptions -= 1;
                if table.all.subscriptions == 0 {
                    // From now on nothing keeps the streams that are not in the table up to date.
                    table.all.baseline = Baseline::Missing;
                    table.unverified = HashMap::new();
                }
                &mut table.all.starting
            }
        };
        starting.retain(|signal| !signal.is_same(start));
    }
}

/// Subscribes to a feed, and creates the feed for its first subscription.
fn subscribe<E: Send + Sync + 'static>(
    capacity: usize,
    feed: &mut Option<Publisher<RingItem<E>>>,
) -> Subscriber<RingItem<E>> {
    match feed {
        Some(feed) => feed.subscribe(),
        None => {
            let (publisher, subscriber) = Builder::new(capacity)
                .on_lag(OnLag::Headroom(capacity as u64 / 4))
                .channel()
                .expect("the bus's builder has checked the capacity");
            *feed = Some(publisher);
            subscriber
        }
    }
}
