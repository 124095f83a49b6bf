//! An audited publisher: records what it published under which sequence.

use super::{History, Ledger, Token};
use crate::ring::Publisher;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) struct Writer {
    pub(crate) publisher: Publisher<Token>,
    ledger: Ledger,
    history: History,
}

impl Writer {
    /// Another handle of the same channel, for another thread, with its own history.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.publisher.clone(), &self.ledger)
    }

    pub(crate) fn new(publisher: Publisher<Token>, ledger: &Ledger) -> Self {
        Self {
            publisher,
            ledger: ledger.clone(),
            history: History::default(),
        }
    }

    /// `publish`.
    pub(crate) fn publish(&mut self) -> u64 {
        let (token, label) = self.ledger.fresh();
        let seq = self.publisher.publish(token);
        self.history.value(seq, label);
        seq
    }

    /// `publish_with`.
    pub(crate) fn publish_with(&mut self) -> u64 {
        let (token, label) = self.ledger.fresh();
        let mut given = None;
        let seq = self.publisher.publish_with(|seq| {
            given = Some(seq);
            token
        });
        assert_eq!(given, Some(seq));
        self.history.value(seq, label);
        seq
    }

    /// `publish_with` whose closure panics, which leaves a void.
    pub(crate) fn publish_panic(&mut self) -> u64 {
        let mut given = None;
        let publisher = &self.publisher;
        let result = catch_unwind(AssertUnwindSafe(|| {
            publisher.publish_with(|seq| {
                given = Some(seq);
                // Not `panic!`: the hook would print.
                std::panic::resume_unwind(Box::new("planned"))
            })
        }));
        assert!(result.is_err(), "the panic reaches the caller");
        let seq = given.expect("the closure ran");
        self.history.void(seq);
        seq
    }

    /// `publish_batch` of `values` events, then as many `voids` by an iterator that promises more than it has.
    pub(crate) fn publish_batch(&mut self, values: usize, voids: usize) -> Range<u64> {
        let (tokens, labels): (Vec<_>, Vec<_>) = (0..values).map(|_| self.ledger.fresh()).unzip();
        let promised = values + voids;
        let range = self.publisher.publish_batch(Promising {
            items: tokens.into_iter(),
            promised,
        });
        assert_eq!(range.end - range.start, promised as u64);
        let mut labels = labels.into_iter();
        for seq in range.clone() {
            match labels.next() {
                Some(label) => self.history.value(seq, label),
                None => self.history.void(seq),
            }
        }
        range
    }

    /// Drops the publisher.
    pub(crate) fn finish(self) -> History {
        self.history
    }
}

/// An iterator that reports a chosen length.
struct Promising<I> {
    items: I,
    promised: usize,
}

impl<I: Iterator> Iterator for Promising<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.promised = self.promised.saturating_sub(1);
        self.items.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.promised, Some(self.promised))
    }
}

impl<I: Iterator> ExactSizeIterator for Promising<I> {}
