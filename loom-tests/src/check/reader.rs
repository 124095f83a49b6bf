//! An audited subscriber: records what became of every sequence, and checks that nothing is missing.
//!
//! Not `testkit::account`: it compares the fate of every single sequence with what the publishers report.

use super::Token;
use crate::ring::{Lagged, RecvError, Subscriber, TryRecvError};
use std::collections::BTreeMap;

/// What was published, as far as the model's threads report it: the label under each sequence, none for a void.
#[derive(Debug, Default, Clone)]
pub(crate) struct History(BTreeMap<u64, Option<u64>>);

impl History {
    /// Records that `seq` carries `label`.
    pub(crate) fn value(&mut self, seq: u64, label: u64) {
        let before = self.0.insert(seq, Some(label));
        assert_eq!(before, None, "seq {seq} was given twice");
    }

    /// Records that `seq` is void.
    pub(crate) fn void(&mut self, seq: u64) {
        let before = self.0.insert(seq, None);
        assert_eq!(before, None, "seq {seq} was given twice");
    }

    /// Adds what another thread published.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        for (seq, label) in other.0 {
            let before = self.0.insert(seq, label);
            assert_eq!(before, None, "seq {seq} was given twice");
        }
        self
    }

    /// One past the last sequence; also checks that there is none missing since `first`.
    pub(crate) fn end(&self, first: u64) -> u64 {
        let consecutive = (first..).zip(self.0.keys()).all(|(expected, seq)| expected == *seq);
        assert!(consecutive, "sequences are missing: {self:?}");
        first + self.0.len() as u64
    }
}

/// What a sequence was to one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Received(u64),
    Skipped,
    Void,
}

/// The outcome of one receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Received,
    Lagged,
    Empty,
    Closed,
}

pub(crate) struct Reader {
    pub(crate) subscriber: Subscriber<Token>,
    start: u64,
    fates: Vec<Fate>,
}

impl Reader {
    pub(crate) fn new(subscriber: Subscriber<Token>) -> Self {
        Self {
            start: subscriber.position(),
            subscriber,
            fates: Vec::new(),
        }
    }

    /// The first sequence without a fate.
    pub(crate) fn next(&self) -> u64 {
        self.start + self.fates.len() as u64
    }

    /// One receive by value.
    pub(crate) fn receive(&mut self) -> Step {
        let result = self.subscriber.try_recv_seq().map(|(seq, token)| (seq, token.label()));
        self.note(result)
    }

    /// One receive by reference. The reference need not be used: loom sees every write that is not ordered after its end.
    pub(crate) fn receive_ref(&mut self) -> Step {
        let result = self.subscriber.try_recv_ref().map(|held| (held.seq(), held.label()));
        self.note(result)
    }

    /// One receive of a batch, of which at most `take` events are taken.
    pub(crate) fn receive_batch(&mut self, max: usize, take: usize) -> Step {
        let mut taken = Vec::new();
        let outcome = self.subscriber.try_recv_batch(max).map(|mut batch| {
            while taken.len() < take {
                let Some((seq, token)) = batch.next_seq() else { break };
                taken.push((seq, token.label()));
            }
            assert!(!taken.is_empty(), "a batch is never empty");
        });
        for (seq, label) in taken {
            self.note_received(seq, label);
        }
        match outcome {
            Ok(()) => {
                // Voids behind the last event may have been passed over already.
                self.pass_voids(self.subscriber.position());
                Step::Received
            }
            Err(error) => self.note(Err(error)),
        }
    }

    /// One receive of a batch, all of it by `fold`. Only if no sequence is void: a fold does not yield the sequences.
    pub(crate) fn fold_batch(&mut self, max: usize) -> Step {
        let batch = self.subscriber.try_recv_batch(max);
        let outcome = batch.map(|batch| {
            batch.fold(Vec::new(), |mut labels, token| {
                labels.push(token.label());
                labels
            })
        });
        match outcome {
            Ok(labels) => {
                assert!(!labels.is_empty(), "a batch is never empty");
                for label in labels {
                    self.note_received(self.next(), label);
                }
                assert_eq!(self.next(), self.subscriber.position(), "what was folded is received");
                Step::Received
            }
            Err(error) => self.note(Err(error)),
        }
    }

    /// Records the answer to a receive that went through [`Reader::subscriber`].
    pub(crate) fn note(&mut self, result: Result<(u64, u64), TryRecvError>) -> Step {
        let step = match result {
            Ok((seq, label)) => {
                self.note_received(seq, label);
                Step::Received
            }
            Err(TryRecvError::Lagged(lagged)) => {
                self.note_lagged(lagged);
                Step::Lagged
            }
            Err(TryRecvError::Empty) => {
                self.pass_voids(self.subscriber.position());
                Step::Empty
            }
            Err(TryRecvError::Closed) => {
                self.pass_voids(self.subscriber.position());
                Step::Closed
            }
        };
        assert_eq!(self.next(), self.subscriber.position(), "the position after {step:?}");
        step
    }

    /// Waits as a thread for the next event.
    pub(crate) fn wait_as_thread(&mut self) -> Step {
        let result = self.subscriber.recv_blocking();
        // The receive does not return the sequence, but it is the one before the new position.
        let seq = self.subscriber.position() - 1;
        self.note_waited(result.map(|token| (seq, token.label())))
    }

    /// Records the answer to a receive that waited.
    pub(crate) fn note_waited(&mut self, result: Result<(u64, u64), RecvError>) -> Step {
        self.note(result.map_err(|error| match error {
            RecvError::Lagged(lagged) => TryRecvError::Lagged(lagged),
            RecvError::Closed => TryRecvError::Closed,
        }))
    }

    fn note_received(&mut self, seq: u64, label: u64) {
        self.pass_voids(seq);
        self.fates.push(Fate::Received(label));
    }

    fn note_lagged(&mut self, lagged: Lagged) {
        assert!(lagged.skipped >= 1, "{lagged:?}");
        assert_eq!(lagged.resume_at, lagged.first_missed + lagged.skipped, "{lagged:?}");
        self.pass_voids(lagged.first_missed);
        let skipped = std::iter::repeat_n(Fate::Skipped, lagged.skipped as usize);
        self.fates.extend(skipped);
    }

    fn pass_voids(&mut self, until: u64) {
        assert!(until >= self.next(), "went back from {} to {until}", self.next());
        while self.next() < until {
            self.fates.push(Fate::Void);
        }
    }

    /// Receives what is left after the last publication; `end` is one past the last sequence. Everything retained must be there,
    /// and exactly what is not retained must be reported as lost.
    ///
    /// Only for subscribers that resume at the oldest event, which is the default for small rings.
    pub(crate) fn drain(&mut self, end: u64) {
        let oldest = end.saturating_sub(self.subscriber.capacity() as u64);
        if self.next() < oldest {
            assert_eq!(self.receive(), Step::Lagged, "at {} of {end}", self.next());
            assert_eq!(self.next(), oldest, "resumes at the oldest");
        }
        while self.next() < end {
            let before = self.next();
            match self.receive() {
                Step::Received => {}
                Step::Empty | Step::Closed if self.next() == end => return,
                step => panic!("{step:?} at {before}, with {end} published before"),
            }
        }
        let last = self.receive();
        assert!(matches!(last, Step::Empty | Step::Closed), "{last:?} past the end");
    }

    /// Compares everything seen with what was published, and with the subscriber's own statistics.
    pub(crate) fn audit(&self, history: &History) {
        let mut received = 0;
        let mut skipped = 0;
        let mut void = 0;
        for (seq, fate) in (self.start..).zip(&self.fates) {
            let published = history.0.get(&seq);
            match *fate {
                Fate::Received(label) => {
                    received += 1;
                    assert_eq!(published, Some(&Some(label)), "what seq {seq} carries");
                }
                Fate::Void => {
                    void += 1;
                    assert_eq!(published, Some(&None), "seq {seq} was taken for void");
                }
                Fate::Skipped => {
                    skipped += 1;
                    assert!(published.is_some(), "seq {seq} was skipped and never published");
                }
            }
        }
        let stats = self.subscriber.stats();
        assert_eq!(
            (stats.received, stats.skipped, stats.void),
            (received, skipped, void),
            "statistics"
        );
        assert_eq!(
            received + skipped + void,
            self.subscriber.position() - self.start,
            "conservation"
        );
        // What was lost always lies a whole capacity behind the end.
        let end = self.start.max(history.0.keys().next_back().map_or(0, |last| last + 1));
        let kept = end.saturating_sub(self.subscriber.capacity() as u64);
        for (seq, fate) in (self.start..).zip(&self.fates) {
            assert!(
                *fate != Fate::Skipped || seq < kept,
                "seq {seq} was skipped but retained"
            );
        }
    }

    /// The labels received, in order.
    pub(crate) fn labels(&self) -> Vec<u64> {
        self.fates
            .iter()
            .filter_map(|fate| match fate {
                Fate::Received(label) => Some(*label),
                _ => None,
            })
            .collect()
    }
}
