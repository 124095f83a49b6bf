//! Runs every operation on a real channel and on the reference, and compares.

use doorbell::ring::{MAX_SEQ, Publisher, Start, Subscriber, SubscriberStats, WeakPublisher};
use testkit::panics::{may_panic, planned_panic};
use testkit::tracked::{DropCounter, Tracked};

use crate::claiming::Claiming;
use crate::model::{Answer, Entry, Ledger, Reader};
use crate::ops::{From, Inner, Op, Script};
use crate::receive;

/// A subscriber and the reference's state for it.
pub(crate) struct Follower {
    pub(crate) real: Subscriber<Tracked>,
    pub(crate) model: Reader,
    /// The statistics at the start of this subscriber.
    base: SubscriberStats,
}

impl Follower {
    fn new(real: Subscriber<Tracked>, start: u64) -> Self {
        assert_eq!(real.position(), start, "the start differs");
        let base = real.stats();
        Self {
            real,
            model: Reader::new(start),
            base,
        }
    }

    /// A clone starts at the position of the original.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.real.clone(), self.model.position)
    }

    pub(crate) fn accept(&mut self, ledger: &Ledger, answer: Answer) {
        self.model.accept(ledger, answer, self.real.position());
    }

    fn check(&self, ledger: &Ledger) {
        let (model, stats) = (&self.model, self.real.stats());
        assert_eq!(self.real.position(), model.position);
        assert_eq!(
            stats.received - self.base.received,
            model.received,
            "received: {model:?}"
        );
        assert_eq!(stats.skipped - self.base.skipped, model.skipped, "skipped: {model:?}");
        assert_eq!(stats.void - self.base.void, model.void, "void: {model:?}");
        assert_eq!(
            stats.lag_events - self.base.lag_events,
            model.lag_events,
            "lag events: {model:?}"
        );
        assert_eq!(
            model.received + model.skipped + model.void,
            model.position - model.start
        );
        let backlog = ledger.next_seq().saturating_sub(model.position);
        assert_eq!((self.real.backlog(), stats.backlog), (backlog, backlog));
        assert_eq!(self.real.is_closed(), ledger.closed);
        assert_eq!(self.real.capacity() as u64, ledger.capacity);
    }
}

/// A real channel beside its reference.
pub(crate) struct Harness {
    publishers: Vec<Publisher<Tracked>>,
    weak: WeakPublisher<Tracked>,
    pub(crate) followers: Vec<Follower>,
    pub(crate) ledger: Ledger,
    counter: DropCounter,
    next_id: u64,
}

impl Harness {
    /// Runs the script on a new channel.
    pub(crate) fn run_script(script: &Script) {
        let (publisher, subscriber) = script.builder().channel().unwrap();
        let harness = Self {
            weak: publisher.downgrade(),
            publishers: vec![publisher],
            followers: vec![Follower::new(subscriber, script.first_seq)],
            ledger: Ledger::new(script.capacity as u64, script.first_seq, script.policy()),
            counter: DropCounter::new(),
            next_id: 0,
        };
        harness.run(&script.ops);
    }

    fn run(mut self, ops: &[Op]) {
        self.check();
        for op in ops {
            self.apply(op);
            self.check();
        }
        self.drain();
        let counter = self.counter.clone();
        drop(self);
        assert_eq!(counter.alive(), 0, "every value is dropped exactly once");
    }

    /// After the last publisher was dropped, every subscriber receives what is retained, then `Closed`.
    fn drain(&mut self) {
        self.ledger.closed = true;
        self.publishers.clear();
        for follower in &mut self.followers {
            loop {
                let answer = receive::answer(follower.real.try_recv_seq());
                follower.accept(&self.ledger, answer);
                if answer == Answer::Closed {
                    break;
                }
            }
            follower.check(&self.ledger);
        }
    }

    fn check(&mut self) {
        let ledger = &self.ledger;
        for follower in &self.followers {
            follower.check(ledger);
        }
        let slowest = self.followers.iter().map(|follower| follower.model.position).min();
        let count = self.followers.len();
        if let Some(publisher) = self.publisher(0) {
            assert_eq!(publisher.next_seq(), ledger.next_seq());
            assert_eq!(publisher.subscriber_count(), count);
            let stats = publisher.stats();
            assert_eq!(stats.capacity as u64, ledger.capacity);
            assert_eq!(stats.first_seq, ledger.first_seq);
            assert_eq!(stats.next_seq, ledger.next_seq());
            assert_eq!(stats.published, ledger.values());
            assert_eq!(stats.void, ledger.voids());
            assert_eq!(stats.subscribers, count);
            assert_eq!(stats.publishers, self.publishers.len());
            assert_eq!(stats.slowest_position, slowest);
        }
    }

    /// The publisher that `by` selects, if one is left.
    fn publisher(&self, by: usize) -> Option<&Publisher<Tracked>> {
        self.publishers.get(by % self.publishers.len().max(1))
    }

    fn fits(&self, count: usize) -> bool {
        self.ledger.next_seq() + count as u64 <= MAX_SEQ + 1
    }

    fn new_value(&mut self) -> (u64, Tracked) {
        self.next_id += 1;
        (self.next_id, self.counter.value(self.next_id))
    }

    pub(crate) fn publish(&mut self, by: usize) {
        if self.ledger.closed || !self.fits(1) {
            return;
        }
        let (id, value) = self.new_value();
        let got = self.publisher(by).map(|publisher| publisher.publish(value));
        let seq = self.ledger.claim();
        self.ledger.finish(seq, Entry::Value(id));
        assert_eq!(got, Some(seq));
    }

    fn publish_with(&mut self, by: usize, panics: bool) {
        if self.ledger.closed || !self.fits(1) {
            return;
        }
        let (id, value) = self.new_value();
        let seq = self.ledger.claim();
        let publish = |got: u64| {
            assert_eq!(got, seq);
            if panics {
                planned_panic();
            }
            value
        };
        let got = may_panic(|| self.publisher(by).map(|publisher| publisher.publish_with(publish)));
        assert_eq!(got, if panics { None } else { Some(Some(seq)) });
        self.ledger
            .finish(seq, if panics { Entry::Void } else { Entry::Value(id) });
    }

    fn publish_around(&mut self, by: usize, inner: &[Inner], panics: bool) {
        let most = inner
            .iter()
            .map(|op| if let Inner::Publish(count) = op { *count } else { 1 })
            .sum::<usize>();
        let Some(outer) = self.publisher(by).cloned() else {
            return;
        };
        if !self.fits(1 + most) {
            return;
        }
        let (id, value) = self.new_value();
        let mut seq = 0;
        let around = |got: u64| {
            seq = self.ledger.claim();
            assert_eq!(got, seq);
            for op in inner {
                match *op {
                    Inner::Publish(count) => (0..count).for_each(|turn| self.publish(by + turn)),
                    Inner::Void => self.publish_with(by, true),
                    Inner::Receive(which) => self.receive(which, crate::ops::Form::TrySeq),
                }
            }
            if panics {
                planned_panic();
            }
            value
        };
        assert_eq!(may_panic(|| outer.publish_with(around)).is_none(), panics);
        self.ledger
            .finish(seq, if panics { Entry::Void } else { Entry::Value(id) });
    }

    fn publish_batch(&mut self, by: usize, claims: usize, yields: usize, panics: bool) {
        if self.ledger.closed || !self.fits(claims) {
            return;
        }
        let first = self.next_id + 1;
        self.next_id += yields as u64;
        let counter = self.counter.clone();
        let batch = Claiming {
            claims,
            values: (first..first + yields as u64)
                .map(|id| counter.value(id))
                .collect::<Vec<_>>()
                .into_iter(),
            panics,
        };
        let got = may_panic(|| {
            self.publisher(by)
                .map(|publisher| publisher.publish_batch(batch))
                .unwrap()
        });
        let start = self.ledger.next_seq();
        for index in 0..claims {
            let seq = self.ledger.claim();
            let entry = if index < yields {
                Entry::Value(first + index as u64)
            } else {
                Entry::Void
            };
            self.ledger.finish(seq, entry);
        }
        let must_fail = panics && yields < claims;
        assert_eq!(got, (!must_fail).then_some(start..start + claims as u64));
    }

    /// The start to pass to the channel, and the expected position.
    fn start(&self, from: From) -> (Start, u64) {
        let next = self.ledger.next_seq();
        match from {
            From::Latest => (Start::Latest, next),
            From::Oldest => (Start::Oldest, self.ledger.oldest()),
            From::AfterTheBeginning => (Start::After(0), self.ledger.first_seq),
            From::Behind(back) => {
                let seq = next.saturating_sub(1 + back);
                (Start::After(seq), (seq + 1).max(self.ledger.first_seq))
            }
            From::Ahead(ahead) => (Start::After(next + ahead), next + ahead + 1),
            From::Never => (Start::After(u64::MAX), u64::MAX),
        }
    }

    fn subscribe(&mut self, from: From) {
        let (start, position) = self.start(from);
        let real = self.publisher(0).map(|publisher| publisher.subscribe_from(start));
        if let Some(real) = real {
            self.followers.push(Follower::new(real, position));
        }
    }

    fn receive(&mut self, which: usize, form: crate::ops::Form) {
        if self.followers.is_empty() {
            return;
        }
        let index = which % self.followers.len();
        receive::receive(&mut self.followers[index], &self.ledger, form);
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Publish { by } => self.publish(*by),
            Op::PublishWith { by, panics } => self.publish_with(*by, *panics),
            Op::PublishAround { by, inner, panics } => self.publish_around(*by, inner, *panics),
            Op::PublishBatch {
                by,
                claims,
                yields,
                panics,
            } => self.publish_batch(*by, *claims, *yields, *panics),
            Op::Subscribe(from) => self.subscribe(*from),
            Op::Receive { which, form } => self.receive(*which, *form),
            Op::HoldRef { which, publishes } => self.hold_ref(*which, *publishes),
            Op::HoldBatch {
                which,
                max,
                before,
                publishes,
                after,
            } => {
                self.hold_batch(*which, *max, *before, *publishes, *after);
            }
            _ => self.apply_to_handles(op),
        }
    }

    fn apply_to_handles(&mut self, op: &Op) {
        let count = self.followers.len();
        match op {
            Op::AddPublisher => {
                if let Some(one) = self.publishers.first() {
                    let another = one.clone();
                    assert!(another.same_channel(one));
                    self.publishers.push(another);
                }
            }
            Op::UpgradePublisher => {
                let upgraded = self.weak.upgrade();
                assert_eq!(
                    upgraded.is_some(),
                    !self.publishers.is_empty(),
                    "a closed channel does not reopen"
                );
                self.publishers.extend(upgraded);
            }
            Op::DropPublisher { by } if !self.publishers.is_empty() => {
                let index = by % self.publishers.len();
                self.publishers.swap_remove(index);
                self.ledger.closed = self.publishers.is_empty();
            }
            Op::CloneSubscriber { which } if count > 0 => {
                let fork = self.followers[which % count].fork();
                self.followers.push(fork);
            }
            Op::ResubscribeFrom { which, from } if count > 0 => {
                let (start, position) = self.start(*from);
                let real = self.followers[which % count].real.resubscribe_from(start);
                self.followers.push(Follower::new(real, position));
            }
            Op::Resubscribe { which } if count > 0 => {
                let real = self.followers[which % count].real.resubscribe();
                self.followers.push(Follower::new(real, self.ledger.next_seq()));
            }
            Op::DropSubscriber { which } if count > 0 => {
                self.followers.swap_remove(which % count);
            }
            _ => {}
        }
    }
}
