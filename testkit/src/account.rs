//! Checks that a subscriber received everything once and in order, apart from items announced as missing.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// The number of differences that an account describes; it counts the rest.
const DESCRIBED: usize = 5;

/// Whether numbers may be missing without an announcement.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub enum Holes {
    /// A hole is a difference.
    #[default]
    Forbidden,
    /// A hole is only counted, as where sequence numbers may be void, or where one of several publishers is followed.
    Allowed,
}

/// The counts of a [`Sequence`], by what happened to each number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Counts {
    /// Received, in order.
    pub received: u64,
    /// Announced as missed because the subscriber was slow.
    pub skipped: u64,
    /// Announcements of skipped numbers.
    pub lags: u64,
    /// Announced as removed from the history.
    pub gaps: u64,
    /// Neither received nor announced.
    pub missing: u64,
    /// Received again directly after itself.
    pub repeated: u64,
    /// Received, or announced, after a higher number.
    pub reordered: u64,
}

impl Counts {
    /// Returns the count of everything that advanced the sequence.
    pub fn accounted(&self) -> u64 {
        self.received + self.skipped + self.gaps + self.missing
    }

    fn add(mut self, other: &Self) -> Self {
        self.received += other.received;
        self.skipped += other.skipped;
        self.lags += other.lags;
        self.gaps += other.gaps;
        self.missing += other.missing;
        self.repeated += other.repeated;
        self.reordered += other.reordered;
        self
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            received,
            skipped,
            lags,
            gaps,
            missing,
            repeated,
            reordered,
        } = self;
        write!(
            f,
            "{received} received, {skipped} skipped in {lags} lags, {gaps} removed, {missing} missing, {repeated} repeated, {reordered} out of order"
        )
    }
}

/// The numbers of one stream, one publisher or one channel, as one subscriber sees them.
///
/// Differences are recorded rather than raised: call [`assert_sound`](Self::assert_sound) after an item to stop at the first, or at
/// the end for a report of several.
///
/// ```
/// use testkit::account::Sequence;
///
/// let mut sequence = Sequence::after(0);
/// sequence.received(1);
/// sequence.skipped(2, 3);
/// sequence.received(5);
/// sequence.assert_sound("the subscriber");
/// sequence.received(7);
/// sequence.received(7);
/// assert_eq!(sequence.differences(), ["6 is missing before 7", "7 came twice"]);
/// ```
#[derive(Clone, Default, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Sequence {
    holes: Holes,
    /// The first number and the next one; unknown until something arrives, unless given.
    span: Option<(u64, u64)>,
    /// Skipped before the first number was known.
    skipped_before: u64,
    /// The highest number that was announced as removed.
    removed_through: u64,
    counts: Counts,
    differences: Vec<String>,
    undescribed: u64,
}

impl Sequence {
    /// Creates a sequence that starts with the first number that is recorded.
    pub fn from_first() -> Self {
        Self::default()
    }

    /// Creates a sequence that starts with the number after this one.
    pub fn after(number: u64) -> Self {
        Self::at(number + 1)
    }

    /// Creates a sequence that starts with this number.
    pub fn at(number: u64) -> Self {
        Self {
            span: Some((number, number)),
            ..Self::default()
        }
    }

    /// Allows numbers to be missing without an announcement.
    pub fn holes(mut self, holes: Holes) -> Self {
        self.holes = holes;
        self
    }

    /// Records an item.
    pub fn received(&mut self, number: u64) {
        if self.advance(number, 1) {
            self.counts.received += 1;
        }
    }

    /// Records an item whose number is not known, but is higher than all before.
    pub fn received_unnumbered(&mut self) {
        if let Some((_, next)) = &mut self.span {
            *next += 1;
        }
        self.counts.received += 1;
    }

    /// Records an announcement that the subscriber was too slow for `count` numbers from `first` on.
    pub fn skipped(&mut self, first: u64, count: u64) {
        if count == 0 {
            self.differ(format!("no number skipped at {first}"));
        }
        if self.advance(first, count) {
            self.counts.skipped += count;
            self.counts.lags += 1;
        }
    }

    /// Records an announcement without a position: the subscriber was too slow for the next `count` numbers.
    pub fn skipped_next(&mut self, count: u64) {
        match &mut self.span {
            Some((_, next)) => *next += count,
            None => self.skipped_before += count,
        }
        self.counts.skipped += count;
        self.counts.lags += 1;
    }

    /// Records an announcement that these numbers are no longer part of the history.
    pub fn removed(&mut self, numbers: RangeInclusive<u64>) {
        let count = (numbers.end() + 1).saturating_sub(*numbers.start());
        if count == 0 {
            self.differ(format!("no number removed at {}", numbers.start()));
        }
        if self.advance(*numbers.start(), count) {
            self.counts.gaps += count;
            self.removed_through = *numbers.end();
        }
    }

    /// Records that the history after `number` was replaced, and continues with `number + 1`. Counts stay.
    pub fn rewound_to(&mut self, number: u64) {
        self.restart_at(number + 1);
    }

    /// Continues with this number, wherever the sequence was. Counts stay.
    pub fn restart_at(&mut self, number: u64) {
        let (first, next) = self.span.get_or_insert((number, number));
        *first = (*first).min(number);
        *next = number;
    }

    /// Records a difference that the numbers do not show, such as a damaged item.
    pub fn differ(&mut self, what: impl Into<String>) {
        if self.differences.len() < DESCRIBED {
            self.differences.push(what.into());
        } else {
            self.undescribed += 1;
        }
    }

    /// Advances to `first + count`, if `first` is what may come next.
    fn advance(&mut self, first: u64, count: u64) -> bool {
        if self.span.is_none() && first < self.skipped_before {
            self.differ(format!("{} skipped before {first}", self.skipped_before));
        }
        let start = first.saturating_sub(self.skipped_before);
        let (_, next) = self.span.get_or_insert((start, first));
        let expected = *next;
        if first < expected {
            if first + 1 == expected {
                self.counts.repeated += 1;
                self.differ(format!("{first} came twice"));
            } else {
                self.counts.reordered += 1;
                self.differ(format!("{first} came after {}", expected - 1));
            }
            return false;
        }
        *next = first + count;
        self.counts.missing += first - expected;
        if first > expected && self.holes == Holes::Forbidden {
            self.differ(match first - expected {
                1 => format!("{expected} is missing before {first}"),
                _ => format!("{expected} to {} are missing before {first}", first - 1),
            });
        }
        true
    }

    /// Returns the first number, if known.
    pub fn first(&self) -> Option<u64> {
        self.span.map(|(first, _)| first)
    }

    /// Returns the lowest number that may come next, if known.
    pub fn next(&self) -> Option<u64> {
        self.span.map(|(_, next)| next)
    }

    /// Returns the last number that was received or announced, or the one before the first; 0 if unknown.
    pub fn last(&self) -> u64 {
        self.next().map_or(0, |next| next - 1)
    }

    /// Returns the highest number that was announced as removed; 0 if none was.
    pub fn removed_through(&self) -> u64 {
        self.removed_through
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns descriptions of the first differences; empty if there are none.
    pub fn differences(&self) -> &[String] {
        &self.differences
    }

    /// Panics with the first differences and the counts if there is a difference.
    #[track_caller]
    pub fn assert_sound(&self, what: impl fmt::Display) {
        assert!(self.differences.is_empty(), "{what}: {self}");
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.counts)?;
        for difference in &self.differences {
            write!(f, "\n  {difference}")?;
        }
        match self.undescribed {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// One [`Sequence`] per stream or publisher.
#[derive(Clone, Default, Debug)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub struct Account<K: Ord> {
    /// The initial state of each stream.
    fresh: Sequence,
    streams: BTreeMap<K, Sequence>,
}

impl<K: Ord> Account<K> {
    /// Creates an account whose streams all start as `fresh`.
    pub fn new(fresh: Sequence) -> Self {
        Self {
            fresh,
            streams: BTreeMap::new(),
        }
    }

    /// Returns a stream, to record an item of it.
    pub fn stream<Q: ?Sized + Ord + ToOwned<Owned = K>>(&mut self, key: &Q) -> &mut Sequence
    where
        K: Borrow<Q>,
    {
        // Two look-ups, but no key is allocated for a stream that is known.
        if !self.streams.contains_key(key) {
            self.streams.insert(key.to_owned(), self.fresh.clone());
        }
        self.streams.get_mut(key).expect("inserted above")
    }

    /// Returns a stream, if an item of it was recorded.
    pub fn get<Q: ?Sized + Ord>(&self, key: &Q) -> Option<&Sequence>
    where
        K: Borrow<Q>,
    {
        self.streams.get(key)
    }

    /// Returns the last number of a stream, like [`Sequence::last`]; 0 if nothing of it was recorded.
    pub fn last<Q: ?Sized + Ord>(&self, key: &Q) -> u64
    where
        K: Borrow<Q>,
    {
        self.get(key).map_or(0, Sequence::last)
    }

    /// Returns all streams, in the order of their keys.
    pub fn streams(&self) -> impl Iterator<Item = (&K, &Sequence)> {
        self.streams.iter()
    }

    /// Returns the counts of all streams together.
    pub fn counts(&self) -> Counts {
        self.streams
            .values()
            .fold(Counts::default(), |sum, stream| sum.add(&stream.counts))
    }

    /// Panics with a report of every stream that has a difference.
    #[track_caller]
    pub fn assert_sound(&self, what: impl fmt::Display)
    where
        K: fmt::Debug,
    {
        let differing = self.streams().filter(|(_, stream)| !stream.differences.is_empty());
        let report: String = differing.map(|(key, stream)| format!("\n{key:?}: {stream}")).collect();
        assert!(report.is_empty(), "{what}: {report}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_numbers_are_no_difference() {
        let mut sequence = Sequence::after(10);
        sequence.removed(11..=13);
        sequence.received(14);
        sequence.skipped_next(2);
        sequence.skipped(17, 1);
        sequence.received(18);
        sequence.assert_sound("the sequence");
        let counts = sequence.counts();
        assert_eq!(
            (counts.received, counts.skipped, counts.lags, counts.gaps),
            (2, 3, 2, 3)
        );
        assert_eq!(counts.accounted(), sequence.next().unwrap() - sequence.first().unwrap());
        assert_eq!(sequence.removed_through(), 13);
    }

    #[test]
    fn holes_repetitions_and_reordering_are_differences() {
        let mut sequence = Sequence::from_first();
        for number in [5, 6, 6, 9, 7, 10] {
            sequence.received(number);
        }
        assert_eq!(
            sequence.differences(),
            ["6 came twice", "7 to 8 are missing before 9", "7 came after 9"]
        );
        let counts = sequence.counts();
        assert_eq!(
            (counts.received, counts.missing, counts.repeated, counts.reordered),
            (4, 2, 1, 1)
        );
    }

    #[test]
    fn allowed_holes_are_counted() {
        let mut sequence = Sequence::at(1).holes(Holes::Allowed);
        sequence.received(4);
        sequence.received_unnumbered();
        sequence.received(9);
        sequence.assert_sound("the sequence");
        assert_eq!(sequence.counts().missing, 6);
        sequence.received(8);
        assert_eq!(sequence.differences().len(), 1);
    }

    #[test]
    fn numbers_skipped_before_the_first_move_the_start() {
        let mut sequence = Sequence::from_first();
        sequence.skipped_next(3);
        assert_eq!((sequence.first(), sequence.last()), (None, 0));
        sequence.received(9);
        assert_eq!((sequence.first(), sequence.last()), (Some(6), 9));
    }

    #[test]
    fn a_replaced_history_starts_again() {
        let mut sequence = Sequence::after(3);
        sequence.received(4);
        sequence.received(5);
        sequence.rewound_to(2);
        sequence.received(3);
        sequence.assert_sound("the sequence");
        assert_eq!((sequence.first(), sequence.last()), (Some(3), 3));
    }

    #[test]
    fn a_report_describes_a_few_differences_and_counts_the_rest() {
        let mut account = Account::<u64>::new(Sequence::after(0));
        account.stream(&1).received(1);
        (0..7).for_each(|_| account.stream(&2).received(0));
        let report = std::panic::catch_unwind(|| account.assert_sound("both")).unwrap_err();
        let report = report.downcast::<String>().unwrap();
        assert!(report.starts_with("both: \n2: 0 received"), "{report}");
        assert!(report.ends_with("0 came twice\n  and 2 more"), "{report}");
        assert_eq!(account.counts().repeated, 7);
    }
}
