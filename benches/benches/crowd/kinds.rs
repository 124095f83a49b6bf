//! The kinds of crowds.

use doorbell_perf::channels::lossy::{Join, Received};
use doorbell_perf::channels::settings::message;

/// What the subscribers of a crowd have done before they rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They received one event of a backlog, all the same one.
    AtOnePlace,
    /// They received one event of a backlog, each another one.
    AtDifferentPlaces,
    /// They received everything.
    Drained,
    /// They never looked.
    NeverRead,
    /// As `AtDifferentPlaces`, but while others publish, one of them in turn receives an event for every 20 published.
    Slow,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::AtOnePlace,
        Self::AtDifferentPlaces,
        Self::Drained,
        Self::NeverRead,
        Self::Slow,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AtOnePlace => "at_one_place",
            Self::AtDifferentPlaces => "at_different_places",
            Self::Drained => "drained",
            Self::NeverRead => "never_read",
            Self::Slow => "slow",
        }
    }
}

/// A publisher, a healthy subscriber, and a crowd.
pub(crate) struct Channel<C: Join> {
    pub(crate) publisher: C::Publisher,
    pub(crate) healthy: C::Subscriber,
    pub(crate) crowd: Vec<C::Subscriber>,
    published: u64,
}

impl<C: Join> Channel<C> {
    /// A channel with a crowd of this kind and size. The healthy subscriber has received everything.
    pub(crate) fn open(capacity: usize, kind: Kind, size: usize) -> Self {
        let (publisher, mut subscribers) = C::open(capacity, 1);
        let mut channel = Self {
            publisher,
            healthy: subscribers.remove(0),
            crowd: Vec::with_capacity(size),
            published: 0,
        };
        // Every slot has been used, however many slots there are for an event retained.
        (0..2 * capacity).for_each(|_| channel.exchange());
        match kind {
            Kind::NeverRead => channel.join(size),
            Kind::Drained => {
                channel.join(size);
                channel.exchange();
                channel.receive_one_each();
                for subscriber in &mut channel.crowd {
                    assert!(matches!(C::try_receive(subscriber), Received::Empty), "drained");
                }
            }
            Kind::AtOnePlace => {
                channel.join(size);
                (0..capacity / 2).for_each(|_| channel.exchange());
                channel.receive_one_each();
            }
            Kind::AtDifferentPlaces | Kind::Slow => {
                for place in 1..=capacity {
                    channel.join(size * place / capacity);
                    channel.exchange();
                }
                channel.receive_one_each();
            }
        }
        channel
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.published += 1;
        self.published - 1
    }

    fn exchange(&mut self) {
        let number = self.next();
        C::publish(&mut self.publisher, message(number));
        match C::try_receive(&mut self.healthy) {
            Received::Message(message) if message[0] == number => {}
            other => panic!("not message {number}: {other:?}"),
        }
    }

    /// Adds subscribers until there are this many.
    fn join(&mut self, size: usize) {
        while self.crowd.len() < size {
            self.crowd.push(C::subscribe(&self.publisher));
        }
    }

    fn receive_one_each(&mut self) {
        for subscriber in &mut self.crowd {
            receive_one::<C>(subscriber);
        }
    }
}

/// Receives one event, after the report of a loss if there is one.
pub(crate) fn receive_one<C: Join>(subscriber: &mut C::Subscriber) {
    loop {
        match C::try_receive(subscriber) {
            Received::Message(_) => return,
            Received::Lost(_) => {}
            other => panic!("no message for one of the crowd: {other:?}"),
        }
    }
}
