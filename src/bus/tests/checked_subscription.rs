//! A subscription that checks what it receives against the model store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::model_store::ModelStore;
use crate::bus::{BusEvent, BusSubscription, FleetEvent, Gap, OnSlow, Rewound};

pub(super) struct CheckedSubscription {
    subscription: BusSubscription,
    received: BTreeMap<String, Received>,
    after: Option<u64>,
    on_slow: OnSlow,
    /// The numbers before the first event that the subscription may get, of streams of which that is known: where they were delivered to when
    /// it was added, or lower if a notification or a rewind has named a lower number since.
    may_start_after: HashMap<String, u64>,
    /// The head of each stream when the subscription became ready, as far as its history is still the same.
    ready_at: Option<HashMap<String, u64>>,
    /// Streams whose history was replaced.
    replaced: HashSet<String>,
    /// Streams whose history may differ before what was received: the subscriber has been told so.
    inexact: HashSet<String>,
    /// Events reported as skipped before the first item of the stream.
    lagged: u64,
}

/// The items of one stream, without a gap.
struct Received {
    /// The number before the first item.
    after: u64,
    items: Vec<Seen>,
}

enum Seen {
    Event(FleetEvent),
    /// Reported as missing, or as perhaps of another history.
    Missing,
}

impl Received {
    fn last(&self) -> u64 {
        self.after + self.items.len() as u64
    }

    fn rewind(&mut self, resume_after: u64, exact: bool) {
        self.after = self.after.min(resume_after);
        let kept = resume_after - self.after;
        self.items
            .truncate(usize::try_from(kept).expect("test streams are short"));
        if !exact {
            self.items.fill_with(|| Seen::Missing);
        }
    }
}

impl CheckedSubscription {
    pub(super) fn new(
        subscription: BusSubscription,
        after: Option<u64>,
        on_slow: OnSlow,
        may_start_after: HashMap<String, u64>,
    ) -> Self {
        Self {
            subscription,
            received: BTreeMap::new(),
            after,
            on_slow,
            may_start_after,
            ready_at: None,
            replaced: HashSet::new(),
            inexact: HashSet::new(),
            lagged: 0,
        }
    }

    /// Whether it started after a number.
    pub(super) fn has_resumed(&self) -> bool {
        self.after.is_some()
    }

    pub(super) fn note_ready(&mut self, model_store: &ModelStore) {
        let mut cx = Context::from_waker(Waker::noop());
        if self.ready_at.is_none() && pin!(self.subscription.ready()).poll(&mut cx).is_ready() {
            self.ready_at = Some(model_store.heads());
        }
    }

    /// Records that the stream has lost the events after `keep`. Those that take their place must be delivered.
    pub(super) fn note_rewind(&mut self, key: &str, keep: u64) {
        if let Some(head) = self.ready_at.as_mut().and_then(|heads| heads.get_mut(key)) {
            *head = keep.min(*head);
        }
        self.note_earlier_start(key, keep);
    }

    pub(super) fn note_replacement(&mut self, key: &str) {
        self.replaced.insert(key.to_owned());
    }

    /// Records that the subscription may get the events after `after` from now on, if it has got none.
    pub(super) fn note_earlier_start(&mut self, key: &str, after: u64) {
        if let Some(may_start_after) = self.may_start_after.get_mut(key) {
            *may_start_after = after.min(*may_start_after);
        }
    }

    /// Receives an item. Returns false if none is ready.
    pub(super) fn receive(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let item = match self.subscription.poll_recv(&mut cx) {
            Poll::Pending => return false,
            Poll::Ready(item) => item.expect("the hub is open"),
        };
        match item {
            BusEvent::Event(event) => {
                self.next_in(&event.agent_id, event.seq)
                    .push(Seen::Event((*event).clone()));
            }
            BusEvent::Gap(Gap { stream_key, seqs }) => {
                let items = self.next_in(&stream_key, *seqs.start());
                items.extend(seqs.map(|_| Seen::Missing));
            }
            BusEvent::Lagged(n) if self.on_slow == OnSlow::Report => {
                let stream = self.received.values_mut().next();
                match stream {
                    Some(received) => received.items.extend((0..n).map(|_| Seen::Missing)),
                    None => self.lagged += n,
                }
            }
            BusEvent::Rewound(rewound) => self.rewound(&rewound),
            other => panic!("{other:?}"),
        }
        true
    }

    /// Checks that `seq` is the next number of a stream.
    fn next_in(&mut self, key: &str, seq: u64) -> &mut Vec<Seen> {
        assert!(self.subscription.stream_key().is_none_or(|own| own == key));
        let lagged = std::mem::take(&mut self.lagged);
        let received = self.received.entry(key.to_owned()).or_insert_with(|| {
            let after = self.after.unwrap_or(seq - lagged - 1);
            let items = (0..lagged).map(|_| Seen::Missing).collect();
            Received { after, items }
        });
        assert_eq!(seq, received.last() + 1, "in {key}");
        &mut received.items
    }

    fn rewound(&mut self, rewound: &Rewound) {
        let &Rewound {
            ref stream_key,
            delivered,
            resume_after,
            exact,
        } = rewound;
        assert!(
            resume_after < delivered || (resume_after == delivered && !exact),
            "{rewound:?}"
        );
        if !exact {
            self.inexact.insert(stream_key.to_string());
        }
        let lagged = std::mem::take(&mut self.lagged);
        match (self.received.get_mut(&**stream_key), self.after) {
            (Some(received), _) => {
                assert_eq!(delivered, received.last(), "in {stream_key}");
                received.rewind(resume_after, exact);
                return;
            }
            (None, Some(after)) => assert_eq!(delivered, after + lagged, "in {stream_key}"),
            (None, None) => assert!(lagged > 0, "{stream_key}: lost {delivered}, but nothing was delivered"),
        }
        let received = Received {
            after: resume_after,
            items: Vec::new(),
        };
        self.received.insert(stream_key.to_string(), received);
    }

    /// Checks that everything was received.
    pub(super) fn check(&self, model_store: &ModelStore) {
        let ready_at = self.ready_at.as_ref().expect("the subscription is ready");
        for (key, head) in model_store.heads() {
            if self.subscription.stream_key().is_some_and(|own| own != key) {
                continue;
            }
            let mut owed_after = self.after.unwrap_or(ready_at.get(&key).copied().unwrap_or(0));
            if self.replaced.contains(&key) {
                // Nothing proves which events were before those that retention has removed.
                owed_after = owed_after.max(model_store.low_water(&key));
            }
            let Some(received) = self.received.get(&key) else {
                let missing = head.saturating_sub(owed_after);
                assert!(
                    self.lagged >= missing,
                    "{key}: nothing was received, but the events after {owed_after} are owed"
                );
                continue;
            };
            assert!(
                received.after <= owed_after || self.inexact.contains(&key),
                "{key}: started after {}, but the events after {owed_after} are owed",
                received.after
            );
            assert!(
                self.after.is_some()
                    || self
                        .may_start_after
                        .get(&key)
                        .is_none_or(|&after| received.after >= after),
                "{key}: got the events after {}, which were delivered before it was added",
                received.after
            );
            assert_eq!(received.last(), head, "{key}: the last event");
            for (seq, item) in (received.after + 1..).zip(&received.items) {
                // Nothing proves that events that retention has removed are those that were delivered.
                if let Seen::Event(event) = item
                    && seq > model_store.low_water(&key)
                {
                    assert_eq!(*event, model_store.event(&key, seq));
                }
            }
        }
    }
}
