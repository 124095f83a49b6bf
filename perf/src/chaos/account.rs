//! What a subscription received, in bounded memory: sequence numbers are checked one by one, contents only as checksums of blocks.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use doorbell::bus::{BusEvent, FleetEvent, FleetEventKind};
use serde::{Deserialize, Serialize};
use testkit::account::Sequence;

/// Events of a stream that share one checksum.
const BLOCK: u64 = 5_000;

/// Records the next item of a stream. Panics if it is out of order, repeated or leaves an unannounced hole.
pub fn record(numbers: &mut Sequence, item: &BusEvent) {
    match item {
        BusEvent::Event(event) => numbers.received(event.seq),
        BusEvent::Gap(gap) => numbers.removed(gap.seqs.clone()),
        BusEvent::Lagged(events) => numbers.skipped_next(*events),
        // No history is replaced here, and all processes run the same build.
        other => panic!("{other:?} after {}", numbers.last()),
    }
    numbers.assert_sound(format_args!("{item:?}"));
}

/// The received events of a block: their count, and the sum of their digests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Block {
    count: u64,
    checksum: u64,
}

/// What one subscription received, of one stream or of all, from their first event on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    numbers: testkit::account::Account<String>,
    blocks: BTreeMap<String, Vec<Block>>,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            numbers: testkit::account::Account::new(Sequence::after(0)),
            blocks: BTreeMap::new(),
        }
    }
}

impl Account {
    /// Records the next item. `of` is the stream of a subscription to one stream.
    pub fn record(&mut self, of: Option<&str>, item: &BusEvent) {
        let key = match item {
            BusEvent::Event(event) => &event.agent_id,
            BusEvent::Gap(gap) => &*gap.stream_key,
            _ => of.expect("subscriptions to all streams get events and gaps only"),
        };
        assert!(of.is_none_or(|of| of == key), "{item:?} in {of:?}");
        record(self.numbers.stream(key), item);
        if let BusEvent::Event(event) = item {
            self.add(event);
        }
    }

    fn add(&mut self, event: &FleetEvent) {
        let index = ((event.seq - 1) / BLOCK) as usize;
        if !self.blocks.contains_key(&event.agent_id) {
            self.blocks.insert(event.agent_id.clone(), Vec::new());
        }
        let blocks = self.blocks.get_mut(&event.agent_id).expect("inserted above");
        if blocks.len() <= index {
            blocks.resize(index + 1, Block::default());
        }
        let block = &mut blocks[index];
        block.count += 1;
        block.checksum = block.checksum.wrapping_add(digest(event));
    }

    /// The last number of a stream that was received or announced as missing.
    pub fn last(&self, key: &str) -> u64 {
        self.numbers.last(key)
    }

    /// How many events were announced as missing: removed by retention, or skipped.
    pub fn missing(&self) -> u64 {
        let counts = self.numbers.counts();
        counts.gaps + counts.skipped
    }

    /// Compares this complete account with a subscription's; returns how many events could be compared. Gaps must not reach beyond
    /// a stream's `low_water_mark`.
    pub fn compare(&self, received: &Self, low_water_mark: impl Fn(&str) -> u64) -> Result<u64, String> {
        for (key, numbers) in received.numbers.streams() {
            let (committed, last) = (self.last(key), numbers.last());
            if committed != last {
                return Err(format!(
                    "stream {key:?} has {committed} events, the subscription ended at {last}"
                ));
            }
            let removed = numbers.removed_through();
            if removed > low_water_mark(key) {
                return Err(format!(
                    "stream {key:?}: {removed} was announced as removed, but is in the store"
                ));
            }
        }
        let mut compared = 0;
        for (key, received) in &received.blocks {
            let committed = self.blocks.get(key).map_or(&[][..], |blocks| blocks);
            for (index, (committed, received)) in committed.iter().zip(received).enumerate() {
                if committed.count != received.count {
                    continue; // some of its events were announced as missing
                }
                if committed.checksum != received.checksum {
                    let first = index as u64 * BLOCK + 1;
                    return Err(format!(
                        "stream {key:?}: an event between {first} and {} differs",
                        first + BLOCK - 1
                    ));
                }
                compared += committed.count;
            }
        }
        Ok(compared)
    }
}

/// Equal in every process of this program.
fn digest(event: &FleetEvent) -> u64 {
    let FleetEventKind::Custom { data, .. } = &event.kind else {
        panic!("no publisher appends {event:?}")
    };
    let mut hasher = DefaultHasher::new();
    (&event.agent_id, event.seq, data).hash(&mut hasher);
    hasher.finish()
}
