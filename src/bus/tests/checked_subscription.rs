//! A subscription under test, and what it is owed.

use std::collections::{BTreeMap, HashMap};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::model_store::ModelStore;
use crate::bus::{BusEvent, BusSubscription, FleetEvent, Gap, OnSlow, Rewound};

pub(super) struct CheckedSubscription {
    subscription: BusSubscription,
    had: BTreeMap<String, Had>,
    after: Option<u64>,
    on_slow: OnSlow,
    /// What each stream held when it became ready, as far as its history is still the same.
    ready_at: Option<HashMap<String, u64>>,
    /// Events that it was told to have missed, before the first that it had.
    lagged: u64,
}

/// What came of a stream, without a hole.
struct Had {
    /// The number before the first of these.
    after: u64,
    items: Vec<Seen>,
}

enum Seen {
    Event(FleetEvent),
    /// Said to be missing.
    Missing,
}

impl Had {
    fn last(&self) -> u64 {
        self.after + self.items.len() as u64
    }

    fn rewind(&mut self, resume_after: u64) {
        self.after = self.after.min(resume_after);
        let kept = resume_after - self.after;
        self.items.truncate(usize::try_from(kept).expect("a small number"));
    }
}

impl CheckedSubscription {
    pub(super) fn new(subscription: BusSubscription, after: Option<u64>, on_slow: OnSlow) -> Self {
        Self {
            subscription,
            had: BTreeMap::new(),
            after,
            on_slow,
            ready_at: None,
            lagged: 0,
        }
    }

    pub(super) fn note_ready(&mut self, model_store: &ModelStore) {
        let mut cx = Context::from_waker(Waker::noop());
        if self.ready_at.is_none() && pin!(self.subscription.ready()).poll(&mut cx).is_ready() {
            self.ready_at = Some(model_store.heads());
        }
    }

    /// The stream has lost what comes after `keep`: what takes its place is owed.
    pub(super) fn note_rewind(&mut self, key: &str, keep: u64) {
        if let Some(head) = self.ready_at.as_mut().and_then(|heads| heads.get_mut(key)) {
            *head = keep.min(*head);
        }
    }

    /// True if there was an item.
    pub(super) fn receive(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let item = match self.subscription.poll_recv(&mut cx) {
            Poll::Pending => return false,
            Poll::Ready(item) => item.expect("the hub is open"),
        };
        match item {
            BusEvent::Event(event) => {
                self.goes_on(&event.agent_id, event.seq)
                    .push(Seen::Event((*event).clone()));
            }
            BusEvent::Gap(Gap { stream_key, seqs }) => {
                let items = self.goes_on(&stream_key, *seqs.start());
                items.extend(seqs.map(|_| Seen::Missing));
            }
            BusEvent::Lagged(n) if self.on_slow == OnSlow::Report => {
                let one = self.had.values_mut().next();
                match one {
                    Some(had) => had.items.extend((0..n).map(|_| Seen::Missing)),
                    None => self.lagged += n,
                }
            }
            BusEvent::Rewound(rewound) => self.rewound(&rewound),
            other => panic!("{other:?}"),
        }
        true
    }

    /// Number `seq` of a stream is what comes next.
    fn goes_on(&mut self, key: &str, seq: u64) -> &mut Vec<Seen> {
        assert!(self.subscription.stream_key().is_none_or(|own| own == key));
        let lagged = std::mem::take(&mut self.lagged);
        let had = self.had.entry(key.to_owned()).or_insert_with(|| {
            let after = self.after.unwrap_or(seq - lagged - 1);
            let items = (0..lagged).map(|_| Seen::Missing).collect();
            Had { after, items }
        });
        assert_eq!(seq, had.last() + 1, "in {key}");
        &mut had.items
    }

    fn rewound(&mut self, rewound: &Rewound) {
        let &Rewound {
            ref stream_key,
            delivered,
            resume_after,
            ..
        } = rewound;
        assert!(resume_after < delivered, "{rewound:?}");
        let lagged = std::mem::take(&mut self.lagged);
        match (self.had.get_mut(&**stream_key), self.after) {
            (Some(had), _) => {
                assert_eq!(delivered, had.last(), "in {stream_key}");
                had.rewind(resume_after);
                return;
            }
            (None, Some(after)) => assert_eq!(delivered, after + lagged, "in {stream_key}"),
            (None, None) => {}
        }
        let had = Had {
            after: resume_after,
            items: Vec::new(),
        };
        self.had.insert(stream_key.to_string(), had);
    }

    /// Everything has come.
    pub(super) fn check(&self, model_store: &ModelStore) {
        let ready_at = self.ready_at.as_ref().expect("everything has started");
        for (key, head) in model_store.heads() {
            if self.subscription.stream_key().is_some_and(|own| own != key) {
                continue;
            }
            let owed_after = self.after.unwrap_or(ready_at.get(&key).copied().unwrap_or(0));
            let Some(had) = self.had.get(&key) else {
                let missing = head.saturating_sub(owed_after);
                assert!(
                    self.lagged >= missing,
                    "{key}: nothing came, what comes after {owed_after} is owed"
                );
                continue;
            };
            assert!(
                had.after <= owed_after,
                "{key}: began after {}, what comes after {owed_after} is owed",
                had.after
            );
            assert_eq!(had.last(), head, "{key}: the last");
            for (seq, item) in (had.after + 1..).zip(&had.items) {
                if let Seen::Event(event) = item {
                    assert_eq!(*event, model_store.event(&key, seq));
                }
            }
        }
    }
}
