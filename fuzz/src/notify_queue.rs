//! The queue of notifications to be sent, which coalesces them per stream.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use doorbell::fuzzing::{NotifyBatch, NotifyQueue, SWEEP_REQUEST, parse_payload};

use crate::input::Input;
use crate::planted::is_planted;

const STREAMS: [&str; 5] = ["a", "b", "a:1", "🔔", "1-2"];

/// The number of streams above which the queue requests a sweep instead.
const MAX_STREAMS: usize = 3;

/// Everything that was queued and not yet sent is announced: each stream once, by a range from its lowest number to its highest, or
/// all of them by a sweep request.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let queue = NotifyQueue::new(MAX_STREAMS);
    let mut pending = Pending::default();
    let mut in_flight: Option<(NotifyBatch, Pending)> = None;
    let (mut announced, mut any_put_back) = (0, false);
    while let Some(choice) = input.byte() {
        match choice % 8 {
            0 => {
                let batch = queue.take();
                let expected = std::mem::take(&mut pending);
                announced += expected.compare(&batch);
                in_flight = Some((batch, expected));
            }
            1 => {
                if let Some((batch, queued)) = in_flight.take() {
                    queue.put_back(batch);
                    pending.put_back(queued);
                    any_put_back = true;
                }
            }
            _ => {
                let Some((key, seqs)) = input.one_of(&STREAMS).zip(input.seqs()) else {
                    break;
                };
                queue.push(key, seqs.clone());
                pending.queued.push((key, seqs));
            }
        }
    }
    announced += pending.compare(&queue.take());
    if !any_put_back {
        let stats = queue.stats();
        assert_eq!(
            stats.events_queued,
            announced + stats.notifications_coalesced + stats.notifications_dropped
        );
    }
}

/// The model: every push since the last take, in order.
#[derive(Default)]
struct Pending {
    queued: Vec<(&'static str, RangeInclusive<u64>)>,
    sweep: bool,
}

impl Pending {
    fn put_back(&mut self, earlier: Self) {
        self.sweep |= earlier.sweep();
        self.queued.extend(earlier.queued);
    }

    fn sweep(&self) -> bool {
        self.sweep || self.coalesced().len() > MAX_STREAMS
    }

    fn coalesced(&self) -> BTreeMap<&str, RangeInclusive<u64>> {
        let mut coalesced = BTreeMap::new();
        for (key, seqs) in &self.queued {
            let all = || {
                self.queued
                    .iter()
                    .filter(|(other, _)| other == key)
                    .map(|(_, seqs)| seqs)
            };
            let first = all().map(RangeInclusive::start).min().expect("the stream was queued");
            let last = all().map(RangeInclusive::end).max().expect("the stream was queued");
            let last = if is_planted() { seqs.end() } else { last };
            coalesced.insert(*key, *first..=*last);
        }
        coalesced
    }

    /// Compares with a batch; returns the number of ranges in it.
    fn compare(&self, batch: &NotifyBatch) -> u64 {
        assert_eq!(batch.is_empty(), self.queued.is_empty() && !self.sweep);
        let payloads = batch.payloads();
        if self.sweep() {
            assert_eq!(payloads, [SWEEP_REQUEST]);
            return 0;
        }
        let mut ranges = Vec::new();
        for payload in &payloads {
            let (parsed, invalid) = parse_payload(payload);
            assert_eq!(invalid, 0, "{payload:?}");
            ranges.extend(parsed);
        }
        ranges.sort_by_key(|(key, _)| *key);
        assert!(ranges.iter().cloned().eq(self.coalesced()), "{payloads:?}");
        ranges.len() as u64
    }
}
