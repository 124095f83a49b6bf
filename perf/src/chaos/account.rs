//! What has come, in little memory: numbers are checked one by one, and what the events say goes into sums of many.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use doorbell::bus::{BusEvent, FleetEvent, FleetEventKind};
use serde::{Deserialize, Serialize};
use testkit::account::Sequence;

/// How many events of a stream one sum is for.
const BLOCK: u64 = 5_000;

/// Records the next item of a stream, which must fit.
pub fn record(numbers: &mut Sequence, item: &BusEvent) {
    match item {
        BusEvent::Event(event) => numbers.received(event.seq),
        BusEvent::Gap(gap) => numbers.removed(gap.seqs.clone()),
        BusEvent::Lagged(events) => numbers.skipped_next(*events),
        // No history is replaced here, and all processes are of one build.
        other => panic!("{other:?} after {}", numbers.last()),
    }
    numbers.assert_sound(format_args!("{item:?}"));
}

/// Some of the events of a block: how many, and the sum of what is made of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Block {
    count: u64,
    sum: u64,
}

/// What one subscription has received, of one stream or of all, from their first event on.
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
    /// Records the next item. `of` is the stream, if the subscription is to one.
    pub fn record(&mut self, of: Option<&str>, item: &BusEvent) {
        let key = match item {
            BusEvent::Event(event) => &event.agent_id,
            BusEvent::Gap(gap) => &*gap.stream_key,
            _ => of.expect("the stream that this is about"),
        };
        assert!(of.is_none_or(|of| of == key), "{item:?} in {of:?}");
        record(self.numbers.stream(key), item);
        if let BusEvent::Event(event) = item {
            self.add(event);
        }
    }

    fn add(&mut self, event: &FleetEvent) {
        let place = ((event.seq - 1) / BLOCK) as usize;
        if !self.blocks.contains_key(&event.agent_id) {
            self.blocks.insert(event.agent_id.clone(), Vec::new());
        }
        let blocks = self.blocks.get_mut(&event.agent_id).expect("it has been put there");
        if blocks.len() <= place {
            blocks.resize(place + 1, Block::default());
        }
        blocks[place].count += 1;
        blocks[place].sum = blocks[place].sum.wrapping_add(digest(event));
    }

    /// The last number of a stream that was received or announced as missing.
    pub fn last(&self, key: &str) -> u64 {
        self.numbers.last(key)
    }

    /// How many events were announced as missing: removed, or passed over.
    pub fn missing(&self) -> u64 {
        let counts = self.numbers.counts();
        counts.gaps + counts.skipped
    }

    /// Whether this, which has everything, agrees with what a subscription has had; how many events could be compared. What is gone
    /// must be among those up to `floor`.
    pub fn compare(&self, other: &Self, floor: impl Fn(&str) -> u64) -> Result<u64, String> {
        let mut compared = 0;
        for (key, numbers) in other.numbers.streams() {
            let (all, had) = (self.last(key), numbers.last());
            if all != had {
                return Err(format!("stream {key:?} has {all} events, {had} came"));
            }
            if numbers.removed_through() > floor(key) {
                let gone = numbers.removed_through();
                return Err(format!(
                    "stream {key:?}: number {gone} came as gone, and was not removed"
                ));
            }
        }
        for (key, theirs) in &other.blocks {
            let ours = self.blocks.get(key).map_or(&[][..], |blocks| blocks);
            for (place, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                if ours.count != theirs.count {
                    continue; // some were missing, as was said
                }
                if ours.sum != theirs.sum {
                    let first = place as u64 * BLOCK + 1;
                    return Err(format!(
                        "stream {key:?}: other events from number {first} on, within {BLOCK}"
                    ));
                }
                compared += ours.count;
            }
        }
        Ok(compared)
    }
}

/// The same in every process of this program.
fn digest(event: &FleetEvent) -> u64 {
    let FleetEventKind::Custom { data, .. } = &event.kind else {
        panic!("nobody writes {event:?}")
    };
    let mut hasher = DefaultHasher::new();
    (&event.agent_id, event.seq, data).hash(&mut hasher);
    hasher.finish()
}
