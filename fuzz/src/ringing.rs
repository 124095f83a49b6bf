//! Doorbells on their way out: what waits is merged.

#[allow(dead_code, reason = "the target sends nothing")]
#[path = "../../src/bus/distributed/notify_queue.rs"]
mod notify_queue;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use self::notify_queue::{Batch, NotifyQueue};
use crate::bus::payload::{SWEEP_REQUEST, parse};
use crate::bus::stats::Counters;
use crate::input::Input;
use crate::planted::is_planted;

const STREAMS: [&str; 5] = ["a", "b", "a:1", "🔔", "1-2"];

/// Streams beyond which a sweep is asked for.
const MOST: usize = 3;

/// Everything that was rung for and not sent is announced: each stream once, by a range that reaches from its lowest number to
/// its highest, or all of them by a sweep.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let counters = Arc::new(Counters::default());
    let bells = NotifyQueue::new(MOST, Arc::clone(&counters));
    let mut waiting = Waiting::default();
    let mut on_its_way: Option<(Batch, Waiting)> = None;
    let (mut announced, mut any_put_back) = (0, false);
    while let Some(choice) = input.byte() {
        match choice % 8 {
            0 => {
                let batch = bells.take();
                let expected = std::mem::take(&mut waiting);
                announced += expected.compare(&batch);
                on_its_way = Some((batch, expected));
            }
            1 => {
                if let Some((batch, rung)) = on_its_way.take() {
                    bells.put_back(batch);
                    waiting.put_back(rung);
                    any_put_back = true;
                }
            }
            _ => {
                let Some((key, seqs)) = input.one_of(&STREAMS).zip(input.seqs()) else {
                    break;
                };
                bells.ring(key, seqs.clone());
                waiting.rung.push((key, seqs));
            }
        }
    }
    announced += waiting.compare(&bells.take());
    if !any_put_back {
        let counted = counters.read();
        assert_eq!(
            counted.events_announced,
            announced + counted.notifications_coalesced + counted.notifications_dropped
        );
    }
}

/// What waits, as it was rung for.
#[derive(Default)]
struct Waiting {
    rung: Vec<(&'static str, RangeInclusive<u64>)>,
    sweep: bool,
}

impl Waiting {
    fn put_back(&mut self, earlier: Self) {
        self.sweep |= earlier.sweep();
        self.rung.extend(earlier.rung);
    }

    fn sweep(&self) -> bool {
        self.sweep || self.merged().len() > MOST
    }

    fn merged(&self) -> BTreeMap<&str, RangeInclusive<u64>> {
        let mut merged = BTreeMap::new();
        for (key, seqs) in &self.rung {
            let all = || self.rung.iter().filter(|(other, _)| other == key).map(|(_, seqs)| seqs);
            let first = all().map(RangeInclusive::start).min().expect("one at least");
            let last = all().map(RangeInclusive::end).max().expect("one at least");
            let last = if is_planted() { seqs.end() } else { last };
            merged.insert(*key, *first..=*last);
        }
        merged
    }

    /// How many pointers a batch of this has.
    fn compare(&self, batch: &Batch) -> u64 {
        assert_eq!(batch.is_empty(), self.rung.is_empty() && !self.sweep);
        let payloads = batch.payloads();
        if self.sweep() {
            assert_eq!(payloads, [SWEEP_REQUEST]);
            return 0;
        }
        let mut pointers = Vec::new();
        for payload in &payloads {
            let (parsed, bad) = parse(payload);
            assert_eq!(bad, 0, "{payload:?}");
            pointers.extend(parsed.into_iter().map(|pointer| (pointer.stream_key, pointer.seqs)));
        }
        pointers.sort_by_key(|(key, _)| *key);
        assert!(pointers.iter().cloned().eq(self.merged()), "{payloads:?}");
        pointers.len() as u64
    }
}
