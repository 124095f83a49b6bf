//! What the server listens on, what it should, and when to look again: everything about registrations but the wire.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::channel_diff::diff;
use super::channel_name::ChannelName;
use super::channels::Channels;
use super::error::ListenError;

#[derive(Default)]
pub(super) struct Reconciler {
    /// What the server has acknowledged.
    listening: HashSet<ChannelName>,
    /// Channels to look at again, by when: they linger, or were refused.
    later: HashMap<ChannelName, Instant>,
    /// Refused channels whose holders are missing something, and why.
    deaf: HashMap<ChannelName, ListenError>,
}

/// What has to be said to the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Statements {
    pub(super) unlisten: Vec<ChannelName>,
    pub(super) listen: Vec<ChannelName>,
}

impl Reconciler {
    /// Compares the registry with the server, and forgets in the registry what is given up.
    pub(super) fn plan(&mut self, channels: &Channels, now: Instant) -> Statements {
        let mut changes = channels.take_changes();
        // What has changed is looked at in any case.
        for (name, _) in &changes {
            self.later.remove(name);
        }
        let due = self.later.extract_if(|_, due| *due <= now);
        changes.extend(channels.wanted(due.map(|(name, _)| name).collect()));
        let mut diff = diff(changes, &self.listening, now);
        self.later.extend(diff.later.into_iter().map(|(due, name)| (name, due)));
        // Who came back in this moment keeps it, and is among the next changes.
        diff.forget.retain(|name| channels.forget(name));
        diff.unlisten.retain(|name| channels.forget(name));
        for name in diff.forget.iter().chain(&diff.unlisten) {
            self.deaf.remove(name);
        }
        for name in &diff.unlisten {
            self.listening.remove(name);
        }
        Statements {
            unlisten: diff.unlisten,
            listen: diff.listen,
        }
    }

    /// The server has acknowledged a LISTEN.
    pub(super) fn acknowledged(&mut self, name: &ChannelName) {
        self.deaf.remove(name);
        self.listening.insert(name.clone());
    }

    /// The server has refused a LISTEN; `is_missed` says whether that makes the listener deaf to somebody, or is only the failure
    /// of a new subscription.
    pub(super) fn refused(&mut self, name: &ChannelName, error: ListenError, is_missed: bool, again: Instant) {
        self.later.insert(name.clone(), again);
        if is_missed {
            self.deaf.insert(name.clone(), error);
        }
    }

    /// When to look again, if there is anything to look at.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.later.values().min().copied()
    }

    pub(super) fn listening(&self) -> &HashSet<ChannelName> {
        &self.listening
    }

    /// Why some holders hear nothing at present, if there are such.
    pub(super) fn deafness(&self) -> Option<&ListenError> {
        self.deaf.values().next()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use proptest::prelude::*;
    use tokio::sync::watch;

    use super::*;
    use crate::listen::channels::{Ack, Registered};
    use crate::listen::item::Reconnected;

    const CHANNELS: usize = 4;
    const LINGER: Duration = Duration::from_secs(5);
    const AGAIN: Duration = Duration::from_secs(7);

    #[derive(Clone, Debug)]
    enum Step {
        /// Somebody subscribes to a channel.
        Hold(usize),
        /// One of those there are goes; by which one modulo their number.
        Release(usize),
        /// The owner looks, and the server refuses some of the channels.
        Look { refused: Vec<usize> },
        /// The connection is lost.
        Lose,
        /// A new one is made, if there is none.
        Connect,
        /// Time passes.
        Wait(Duration),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..CHANNELS).prop_map(Step::Hold),
            4 => (0_usize..16).prop_map(Step::Release),
            4 => prop::collection::vec(0..CHANNELS, 0..2).prop_map(|refused| Step::Look { refused }),
            1 => Just(Step::Lose),
            2 => Just(Step::Connect),
            2 => (0_u64..10).prop_map(|seconds| Step::Wait(Duration::from_secs(seconds))),
        ];
        prop::collection::vec(step, 0..80)
    }

    /// The registry and the owner's part of it, before a server that does as it is told.
    struct World {
        channels: Channels,
        reconciler: Reconciler,
        server: HashSet<ChannelName>,
        holders: Vec<Registered>,
        /// How far time has been put forward.
        ahead: Duration,
        connected: bool,
        outages: u64,
    }

    fn name(channel: usize) -> ChannelName {
        ChannelName::new(&format!("channel {channel}")).unwrap()
    }

    impl World {
        fn new() -> Self {
            let channels = Channels::new(NonZeroUsize::new(256).unwrap(), LINGER);
            channels.start_over();
            Self {
                channels,
                reconciler: Reconciler::default(),
                server: HashSet::new(),
                holders: Vec::new(),
                ahead: Duration::ZERO,
                connected: true,
                outages: 0,
            }
        }

        fn now(&self) -> Instant {
            Instant::now() + self.ahead
        }

        fn look(&mut self, refused: &[usize]) {
            let statements = self.reconciler.plan(&self.channels, self.now());
            for name in &statements.unlisten {
                assert!(self.server.remove(name), "{name:?} was never listened to");
            }
            let marker = Reconnected::for_tests(self.outages);
            for name in statements.listen {
                if refused.iter().any(|channel| self::name(*channel) == name) {
                    let error = ListenError::Standby;
                    let was_listening = self.channels.refuse(&name, &error);
                    self.reconciler.refused(&name, error, was_listening, self.now() + AGAIN);
                } else {
                    assert!(self.server.insert(name.clone()), "{name:?} is listened to twice");
                    self.reconciler.acknowledged(&name);
                    self.channels.acknowledge(std::slice::from_ref(&name), Some(marker));
                }
            }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Hold(channel) => self.holders.push(self.channels.hold(name(channel))),
                Step::Release(which) => {
                    if !self.holders.is_empty() {
                        let gone = self.holders.swap_remove(which % self.holders.len());
                        self.channels.release(&gone.name);
                    }
                }
                Step::Look { refused } if self.connected => self.look(&refused),
                Step::Look { .. } => {}
                Step::Lose => {
                    self.outages += u64::from(self.connected);
                    self.connected = false;
                    self.channels.disconnected();
                    self.reconciler = Reconciler::default();
                    self.server.clear();
                }
                Step::Connect => {
                    if !self.connected {
                        self.connected = true;
                        self.channels.start_over();
                        self.look(&[]);
                    }
                }
                Step::Wait(time) => self.ahead += time,
            }
        }

        /// What must hold at any time.
        fn check(&self) {
            assert_eq!(&self.server, self.reconciler.listening());
            for holder in &self.holders {
                if is_listening(&holder.ack) {
                    assert!(
                        self.server.contains(&holder.name),
                        "{:?} is deaf and believes otherwise",
                        holder.name
                    );
                }
            }
        }
    }

    fn is_listening(ack: &watch::Receiver<Ack>) -> bool {
        matches!(*ack.borrow(), Ack::Listening)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

        /// Whatever comes and goes in whatever order: nobody is told that the server listens when it does not, and in the end
        /// it listens on exactly what is held, and every holder knows.
        #[test]
        fn the_server_ends_up_with_exactly_what_is_held(steps in steps()) {
            let mut world = World::new();
            for step in steps {
                world.step(step);
                world.check();
            }
            // Nothing else happens: the connection stands, lingering ends, refusals are asked about again.
            world.step(Step::Connect);
            world.look(&[]);
            world.ahead += LINGER + AGAIN;
            world.look(&[]);
            world.check();
            let held: HashSet<ChannelName> = world.holders.iter().map(|holder| holder.name.clone()).collect();
            prop_assert_eq!(&world.server, &held);
            prop_assert!(world.holders.iter().all(|holder| is_listening(&holder.ack)));
            prop_assert_eq!(world.reconciler.next_due(), None);
            prop_assert!(world.reconciler.deafness().is_none());
            prop_assert_eq!(world.channels.size(), (held.len(), world.holders.len()));
            prop_assert_eq!(world.channels.known(), held.len());
        }

        /// A holder that was listening through an outage gets exactly one marker for it, and one that was not gets none at all.
        #[test]
        fn markers_are_for_those_who_may_have_missed_something(outages in 1_u64..5, before in any::<bool>()) {
            let mut world = World::new();
            if before {
                world.step(Step::Hold(0));
            }
            world.look(&[]);
            for _ in 0..outages {
                world.step(Step::Lose);
                world.step(Step::Connect);
            }
            if !before {
                world.step(Step::Hold(0));
                world.look(&[]);
            }
            let expected = if before { outages } else { 0 };
            prop_assert_eq!(world.holders[0].items.backlog(), expected);
        }
    }

    #[test]
    fn too_many_lingering_channels_are_given_up_at_once() {
        let channels = Channels::new(NonZeroUsize::MIN, Duration::from_secs(3600));
        channels.start_over();
        let mut reconciler = Reconciler::default();
        let names: Vec<_> = (0..1500).map(name).collect();
        for name in &names {
            channels.hold(name.clone());
        }
        for name in reconciler.plan(&channels, Instant::now()).listen {
            reconciler.acknowledged(&name);
        }
        for name in &names {
            channels.release(name);
        }
        let statements = reconciler.plan(&channels, Instant::now());
        assert_eq!(statements.unlisten.len(), 1500 - 1024);
        assert_eq!(channels.known(), 1024);
    }
}
