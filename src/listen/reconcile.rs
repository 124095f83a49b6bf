//! Compares the desired channels with those that the server listens on, and decides which statements are due. Does no I/O.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::channel_name::ChannelName;
use super::channels::{Channels, Desired};
use super::error::ListenError;

#[derive(Default)]
pub(super) struct Reconciler {
    /// The channels whose LISTEN the server has acknowledged.
    listening: HashSet<ChannelName>,
    /// When to look at a channel again: an idle one for UNLISTEN, a refused one for another LISTEN.
    due: HashMap<ChannelName, Instant>,
    /// Refused channels whose subscriptions are missing notifications, each with the reason.
    undelivered: HashMap<ChannelName, ListenError>,
}

/// The statements that are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Statements {
    pub(super) unlisten: Vec<ChannelName>,
    pub(super) listen: Vec<ChannelName>,
}

impl Reconciler {
    /// Decides what to send to the server, and removes the channels that are no longer needed. Each name occurs at most once.
    pub(super) fn plan(&mut self, channels: &Channels, now: Instant) -> Statements {
        let mut changes = channels.take_changes();
        for (name, _) in &changes {
            self.due.remove(name);
        }
        let due = self.due.extract_if(|_, due| *due <= now);
        changes.extend(channels.desired(due.map(|(name, _)| name).collect()));

        let mut statements = Statements::default();
        for (name, desired) in changes {
            match (desired, self.listening.contains(&name)) {
                (Desired::Subscribed, true) | (Desired::Removed, false) => {}
                (Desired::Subscribed, false) => statements.listen.push(name),
                (Desired::IdleUntil(until), true) if now < until => {
                    self.due.insert(name, until);
                }
                (Desired::IdleUntil(_) | Desired::Removed, true) => {
                    // If it has subscriptions again, it stays, and is among the next changes.
                    if channels.remove_if_idle(&name) {
                        self.undelivered.remove(&name);
                        self.listening.remove(&name);
                        statements.unlisten.push(name);
                    }
                }
                (Desired::IdleUntil(_), false) => {
                    if channels.remove_if_idle(&name) {
                        self.undelivered.remove(&name);
                    }
                }
            }
        }
        statements
    }

    /// Records that the server has acknowledged a LISTEN.
    pub(super) fn acknowledged(&mut self, name: &ChannelName) {
        self.undelivered.remove(name);
        self.listening.insert(name.clone());
    }

    /// Records that the server has refused a LISTEN, to be repeated at `retry_at`. `is_undelivered` indicates whether the
    /// channel's subscriptions are missing notifications; a new subscription has nothing to miss.
    pub(super) fn refused(&mut self, name: &ChannelName, error: ListenError, is_undelivered: bool, retry_at: Instant) {
        self.due.insert(name.clone(), retry_at);
        if is_undelivered {
            self.undelivered.insert(name.clone(), error);
        }
    }

    /// Returns when [`plan`](Self::plan) has to run again even if nothing changes.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.values().min().copied()
    }

    pub(super) fn listening(&self) -> &HashSet<ChannelName> {
        &self.listening
    }

    /// Returns why some subscriptions are missing notifications, if any are.
    pub(super) fn undelivered(&self) -> Option<&ListenError> {
        self.undelivered.values().next()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::sync::watch;

    use super::*;
    use crate::listen::channels::{Ack, Registration};
    use crate::listen::item::Reconnected;

    const CHANNELS: usize = 4;
    const UNLISTEN_DELAY: Duration = Duration::from_secs(5);
    const RETRY_DELAY: Duration = Duration::from_secs(7);

    #[derive(Clone, Debug)]
    enum Op {
        /// Subscribe to a channel.
        Subscribe(usize),
        /// Drop a subscription: this index modulo their number.
        Unsubscribe(usize),
        /// Reconcile; the server refuses some of the channels.
        Reconcile { refused: Vec<usize> },
        /// Lose the connection.
        Disconnect,
        /// Connect, if there is no connection.
        Connect,
        /// Let time pass.
        Advance(Duration),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (0..CHANNELS).prop_map(Op::Subscribe),
            4 => (0_usize..16).prop_map(Op::Unsubscribe),
            4 => prop::collection::vec(0..CHANNELS, 0..2).prop_map(|refused| Op::Reconcile { refused }),
            1 => Just(Op::Disconnect),
            2 => Just(Op::Connect),
            2 => (0_u64..10).prop_map(|seconds| Op::Advance(Duration::from_secs(seconds))),
        ];
        prop::collection::vec(op, 0..80)
    }

    /// The channel table and the reconciler, in front of a simulated server.
    struct Simulation {
        channels: Channels,
        reconciler: Reconciler,
        server: HashSet<ChannelName>,
        subscriptions: Vec<Registration>,
        /// How far the clock has been advanced.
        ahead: Duration,
        connected: bool,
        outages: u64,
    }

    fn name(channel: usize) -> ChannelName {
        ChannelName::new(&format!("channel {channel}")).unwrap()
    }

    impl Simulation {
        fn new() -> Self {
            let channels = Channels::new(NonZeroUsize::new(256).unwrap(), UNLISTEN_DELAY);
            channels.begin_session();
            Self {
                channels,
                reconciler: Reconciler::default(),
                server: HashSet::new(),
                subscriptions: Vec::new(),
                ahead: Duration::ZERO,
                connected: true,
                outages: 0,
            }
        }

        fn now(&self) -> Instant {
            Instant::now() + self.ahead
        }

        fn reconcile(&mut self, refused: &[usize]) {
            let statements = self.reconciler.plan(&self.channels, self.now());
            for name in &statements.unlisten {
                assert!(self.server.remove(name), "UNLISTEN of {name:?} without a LISTEN");
            }
            let reconnected = Reconnected::for_tests(self.outages);
            for name in statements.listen {
                if refused.iter().any(|channel| self::name(*channel) == name) {
                    let error = ListenError::Standby;
                    let interrupted = self.channels.refuse(&name, &error);
                    let retry_at = self.now() + RETRY_DELAY;
                    self.reconciler.refused(&name, error, interrupted, retry_at);
                } else {
                    assert!(self.server.insert(name.clone()), "a second LISTEN of {name:?}");
                    self.reconciler.acknowledged(&name);
                    self.channels
                        .acknowledge(std::slice::from_ref(&name), Some(reconnected));
                }
            }
        }

        fn apply(&mut self, op: Op) {
            match op {
                Op::Subscribe(channel) => self.subscriptions.push(self.channels.subscribe(name(channel))),
                Op::Unsubscribe(index) => {
                    if !self.subscriptions.is_empty() {
                        let dropped = self.subscriptions.swap_remove(index % self.subscriptions.len());
                        self.channels.unsubscribe(&dropped.name);
                    }
                }
                Op::Reconcile { refused } if self.connected => self.reconcile(&refused),
                Op::Reconcile { .. } => {}
                Op::Disconnect => {
                    self.outages += u64::from(self.connected);
                    self.connected = false;
                    self.channels.end_session();
                    self.reconciler = Reconciler::default();
                    self.server.clear();
                }
                Op::Connect => {
                    if !self.connected {
                        self.connected = true;
                        self.channels.begin_session();
                        self.reconcile(&[]);
                    }
                }
                Op::Advance(time) => self.ahead += time,
            }
        }

        /// Checks what must hold at any time.
        fn check(&self) {
            assert_eq!(&self.server, self.reconciler.listening());
            for subscription in &self.subscriptions {
                if is_acknowledged(&subscription.ack) {
                    assert!(
                        self.server.contains(&subscription.name),
                        "{:?} is acknowledged, but the server does not listen on it",
                        subscription.name
                    );
                }
            }
        }
    }

    fn is_acknowledged(ack: &watch::Receiver<Ack>) -> bool {
        matches!(*ack.borrow(), Ack::Listening)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        /// In any order of operations, no subscription is acknowledged while the server does not listen; and in the end the
        /// server listens on exactly the subscribed channels, and every subscription is acknowledged.
        #[test]
        fn the_server_ends_up_listening_on_exactly_the_subscribed_channels(ops in ops()) {
            let mut simulation = Simulation::new();
            for op in ops {
                simulation.apply(op);
                simulation.check();
            }
            // Quiescence: the connection holds, every delay elapses, and refused channels are retried.
            simulation.apply(Op::Connect);
            simulation.reconcile(&[]);
            simulation.ahead += UNLISTEN_DELAY + RETRY_DELAY;
            simulation.reconcile(&[]);
            simulation.check();
            let subscriptions = &simulation.subscriptions;
            let subscribed: HashSet<ChannelName> = subscriptions.iter().map(|one| one.name.clone()).collect();
            prop_assert_eq!(&simulation.server, &subscribed);
            prop_assert!(subscriptions.iter().all(|subscription| is_acknowledged(&subscription.ack)));
            prop_assert_eq!(simulation.reconciler.next_due(), None);
            prop_assert!(simulation.reconciler.undelivered().is_none());
            prop_assert_eq!(simulation.channels.count(), (subscribed.len(), subscriptions.len()));
            prop_assert_eq!(simulation.channels.len(), subscribed.len());
        }

        /// A subscription acknowledged before an outage gets exactly one `Reconnected` for it; a later one gets none.
        #[test]
        fn only_interrupted_subscriptions_get_reconnected(outages in 1_u64..5, before in any::<bool>()) {
            let mut simulation = Simulation::new();
            if before {
                simulation.apply(Op::Subscribe(0));
            }
            simulation.reconcile(&[]);
            for _ in 0..outages {
                simulation.apply(Op::Disconnect);
                simulation.apply(Op::Connect);
            }
            if !before {
                simulation.apply(Op::Subscribe(0));
                simulation.reconcile(&[]);
            }
            let expected = if before { outages } else { 0 };
            prop_assert_eq!(simulation.subscriptions[0].items.backlog(), expected);
        }
    }

    #[test]
    fn beyond_the_limit_idle_channels_are_unlistened_at_once() {
        let channels = Channels::new(NonZeroUsize::MIN, Duration::from_secs(3600));
        channels.begin_session();
        let mut reconciler = Reconciler::default();
        let names: Vec<_> = (0..1500).map(name).collect();
        for name in &names {
            channels.subscribe(name.clone());
        }
        for name in reconciler.plan(&channels, Instant::now()).listen {
            reconciler.acknowledged(&name);
        }
        for name in &names {
            channels.unsubscribe(name);
        }
        let statements = reconciler.plan(&channels, Instant::now());
        assert_eq!(statements.unlisten.len(), 1500 - 1024);
        assert_eq!(channels.len(), 1024);
    }
}
