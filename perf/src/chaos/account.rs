//! What has come, in little memory: numbers are checked one by one, and what the events say goes into sums of many.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use doorbell::bus::{BusEvent, FleetEvent, FleetEventKind};
use serde::{Deserialize, Serialize};

/// How many events of a stream one sum is for.
const BLOCK: u64 = 5_000;

/// A part of one stream that has come without a hole, or with holes that were announced.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Stretch {
    /// The last number that has come or was announced as missing; none before the first.
    last: Option<u64>,
    /// How many events retention had removed, and the highest number of them.
    pub gone: u64,
    pub gone_through: u64,
    /// How many were passed over since the subscriber was slow and wanted it so.
    pub passed: u64,
}

impl Stretch {
    /// What comes first has the number after this one.
    pub fn after(seq: u64) -> Self {
        Self {
            last: Some(seq),
            ..Self::default()
        }
    }

    pub fn last(&self) -> u64 {
        self.last.unwrap_or(0)
    }

    /// Takes down the next item of the stream, which must fit.
    pub fn take(&mut self, item: &BusEvent) {
        match item {
            BusEvent::Event(event) => {
                self.follows(event.seq);
                self.last = Some(event.seq);
            }
            BusEvent::Gap(gap) => {
                self.follows(*gap.seqs.start());
                self.last = Some(*gap.seqs.end());
                self.gone += gap.count();
                self.gone_through = *gap.seqs.end();
            }
            BusEvent::Lagged(events) => {
                self.last = self.last.map(|last| last + events);
                self.passed += events;
            }
            // No history is replaced here, and all are of one build.
            other => panic!("{other:?} after {:?}", self.last),
        }
    }

    fn follows(&self, seq: u64) {
        assert!(
            self.last.is_none_or(|last| seq == last + 1),
            "{seq} after {:?}",
            self.last
        );
    }
}

/// Some of the events of a block: how many, and the sum of what is made of them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Block {
    count: u64,
    sum: u64,
}

/// What one subscription has had, of one stream or of all, from their first event on.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Account {
    streams: BTreeMap<String, Stretch>,
    blocks: BTreeMap<String, Vec<Block>>,
}

impl Account {
    /// Takes down the next item. `of` is the stream, if the subscription is to one.
    pub fn take(&mut self, of: Option<&str>, item: &BusEvent) {
        let key = match item {
            BusEvent::Event(event) => &event.agent_id,
            BusEvent::Gap(gap) => &*gap.stream_key,
            _ => of.expect("the stream that this is about"),
        };
        assert!(of.is_none_or(|of| of == key), "{item:?} in {of:?}");
        self.stretch(key).take(item);
        if let BusEvent::Event(event) = item {
            self.add(event);
        }
    }

    fn stretch(&mut self, key: &str) -> &mut Stretch {
        if !self.streams.contains_key(key) {
            self.streams.insert(key.to_owned(), Stretch::after(0));
        }
        self.streams.get_mut(key).expect("it has been put there")
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

    /// How far a stream has come.
    pub fn last(&self, key: &str) -> u64 {
        self.streams.get(key).map_or(0, Stretch::last)
    }

    /// How many events were missing, gone or passed over.
    pub fn missing(&self) -> u64 {
        self.streams.values().map(|stretch| stretch.gone + stretch.passed).sum()
    }

    /// Whether this, which has everything, agrees with what a subscription has had; how many events could be compared. What is gone
    /// must be among those up to `floor`.
    pub fn compare(&self, other: &Self, floor: impl Fn(&str) -> u64) -> Result<u64, String> {
        let mut compared = 0;
        for (key, stretch) in &other.streams {
            let (all, had) = (self.last(key), stretch.last());
            if all != had {
                return Err(format!("stream {key:?} has {all} events, {had} came"));
            }
            if stretch.gone_through > floor(key) {
                let gone = stretch.gone_through;
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
