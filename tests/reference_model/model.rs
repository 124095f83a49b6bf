//! The plain sequential reference: what the contract says, with a list instead of the ring.
//!
//! It models seqs that are claimed and not finished (operations inside a `publish_with` closure see one), because there the contract
//! leaves a choice: while `p + capacity` is claimed but not published, `p` may count as lost or not.

use doorbell::ring::{Lagged, OnLag};

/// What became of a claimed seq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Unfinished,
    Void,
    Value(u64),
}

/// Every seq ever claimed on a channel.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) capacity: u64,
    pub(crate) first_seq: u64,
    pub(crate) on_lag: OnLag,
    pub(crate) closed: bool,
    entries: Vec<Entry>,
}

/// The possible results of one receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Empty,
    Closed,
    Value { seq: u64, id: u64 },
    Lagged(Lagged),
}

impl Ledger {
    pub(crate) fn new(capacity: u64, first_seq: u64, on_lag: OnLag) -> Self {
        Self {
            capacity,
            first_seq,
            on_lag,
            closed: false,
            entries: Vec::new(),
        }
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.first_seq + self.entries.len() as u64
    }

    pub(crate) fn claim(&mut self) -> u64 {
        let seq = self.next_seq();
        self.entries.push(Entry::Unfinished);
        seq
    }

    pub(crate) fn finish(&mut self, seq: u64, entry: Entry) {
        let index = (seq - self.first_seq) as usize;
        assert_eq!(self.entries[index], Entry::Unfinished, "the model finished a seq twice");
        self.entries[index] = entry;
    }

    pub(crate) fn entry(&self, seq: u64) -> Option<Entry> {
        let index = usize::try_from(seq.checked_sub(self.first_seq)?).ok()?;
        self.entries.get(index).copied()
    }

    pub(crate) fn values(&self) -> u64 {
        self.entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Value(_)))
            .count() as u64
    }

    pub(crate) fn voids(&self) -> u64 {
        self.entries.iter().filter(|entry| **entry == Entry::Void).count() as u64
    }

    fn settled(&self) -> bool {
        !self.entries.contains(&Entry::Unfinished)
    }

    /// `Some(true)`: lost for certain; `None`: the contract leaves it open.
    pub(crate) fn lost(&self, seq: u64) -> Option<bool> {
        match self.entry(seq.saturating_add(self.capacity)) {
            Some(Entry::Unfinished) => None,
            Some(_) => Some(true),
            None => Some(false),
        }
    }

    /// The oldest seq that a new subscriber can still get.
    pub(crate) fn oldest(&self) -> u64 {
        self.next_seq().saturating_sub(self.capacity).max(self.first_seq)
    }

    fn resume_at(&self) -> u64 {
        let next = self.next_seq();
        match self.on_lag {
            OnLag::Oldest => self.oldest(),
            OnLag::Headroom(spare) => self.oldest().saturating_add(spare).min(next),
            OnLag::Latest => next,
        }
    }

    /// Whether `lagged` is an allowed report for a reader at the lost seq `missed`.
    fn allows(&self, missed: u64, lagged: Lagged) -> bool {
        let exact = lagged.first_missed == missed && lagged.first_missed + lagged.skipped == lagged.resume_at;
        let limit = self.resume_at();
        if self.settled() {
            exact && lagged.resume_at == limit
        } else {
            exact
                && lagged.resume_at > missed
                && lagged.resume_at <= limit
                && (lagged.resume_at == limit || self.lost(lagged.resume_at) != Some(true))
        }
    }
}

/// The position of one subscriber, and its counts.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) start: u64,
    pub(crate) position: u64,
    pub(crate) received: u64,
    pub(crate) skipped: u64,
    pub(crate) void: u64,
    pub(crate) lag_events: u64,
}

impl Reader {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            start,
            position: start,
            received: 0,
            skipped: 0,
            void: 0,
            lag_events: 0,
        }
    }

    /// The result of a receive, where the contract leaves no choice.
    pub(crate) fn predict(&self, ledger: &Ledger) -> Answer {
        let mut seq = self.position;
        loop {
            let Some(entry) = ledger.entry(seq) else {
                return if ledger.closed { Answer::Closed } else { Answer::Empty };
            };
            if ledger.lost(seq) == Some(true) {
                let resume_at = ledger.resume_at();
                return Answer::Lagged(Lagged {
                    skipped: resume_at - seq,
                    first_missed: seq,
                    resume_at,
                });
            }
            match entry {
                Entry::Unfinished => return Answer::Empty,
                Entry::Value(id) => return Answer::Value { seq, id },
                Entry::Void => seq += 1,
            }
        }
    }

    /// Checks the result of a receive and moves to the subscriber's new position.
    pub(crate) fn accept(&mut self, ledger: &Ledger, answer: Answer, position: u64) {
        let mut seq = self.position;
        loop {
            let entry = ledger.entry(seq);
            if let (Some(_), Answer::Lagged(lagged), None | Some(true)) = (entry, answer, ledger.lost(seq))
                && lagged.first_missed == seq
            {
                assert!(
                    ledger.allows(seq, lagged),
                    "{lagged:?} is not exact: {self:?} {ledger:?}"
                );
                self.pass_voids(ledger, seq);
                self.skipped += lagged.skipped;
                self.lag_events += 1;
                self.position = lagged.resume_at;
                break;
            }
            assert!(
                entry.is_none() || ledger.lost(seq) != Some(true),
                "{answer:?}, but {seq} is lost: {self:?} {ledger:?}"
            );
            match (entry, answer) {
                (Some(Entry::Void), _) => seq += 1,
                (Some(Entry::Value(expected)), Answer::Value { seq: got, id }) => {
                    assert_eq!((got, id), (seq, expected), "the wrong value: {self:?} {ledger:?}");
                    self.pass_voids(ledger, seq);
                    self.received += 1;
                    self.position += 1;
                    break;
                }
                (Some(Entry::Unfinished), Answer::Empty) => break,
                (None, Answer::Empty) if !ledger.closed => break,
                (None, Answer::Closed) if ledger.closed => break,
                _ => panic!("{answer:?} at {seq}, which is {entry:?}: {self:?} {ledger:?}"),
            }
        }
        self.settle(ledger, position);
    }

    /// Moves on after a result that was already compared with the predicted one.
    pub(crate) fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Empty | Answer::Closed => {}
            Answer::Value { seq, .. } => {
                self.void += seq - self.position;
                self.received += 1;
                self.position = seq + 1;
            }
            Answer::Lagged(lagged) => {
                self.void += lagged.first_missed - self.position;
                self.skipped += lagged.skipped;
                self.lag_events += 1;
                self.position = lagged.resume_at;
            }
        }
    }

    /// Up to `max` readable values from the position on, in order.
    pub(crate) fn values_ahead(&self, ledger: &Ledger, max: usize) -> Vec<(u64, u64)> {
        let mut ahead = Vec::new();
        let mut seq = self.position;
        while ahead.len() < max {
            match ledger.entry(seq) {
                Some(Entry::Value(id)) => ahead.push((seq, id)),
                Some(Entry::Void) => {}
                Some(Entry::Unfinished) | None => break,
            }
            seq += 1;
        }
        ahead
    }

    /// Follows the subscriber over voids, which it may pass now or in its next receive.
    pub(crate) fn settle(&mut self, ledger: &Ledger, position: u64) {
        assert!(
            position >= self.position,
            "went back to {position}: {self:?} {ledger:?}"
        );
        self.pass_voids(ledger, position);
    }

    fn pass_voids(&mut self, ledger: &Ledger, up_to: u64) {
        while self.position < up_to {
            assert_eq!(
                ledger.entry(self.position),
                Some(Entry::Void),
                "passed over a seq that is not a void: {self:?} {ledger:?}"
            );
            self.void += 1;
            self.position += 1;
        }
    }
}
