//! Compares a store with a model, a plain map, over random sequences of operations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use doorbell::bus::StreamEvent as _;
use doorbell::store::{ReplayRange, Store, StoreError, Watermark};
use proptest::prelude::*;

use super::{all_changes, event};

const STREAMS: usize = 3;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Append(usize),
    /// An event whose number differs from the next by this much.
    Stamped(usize, i64),
    /// One event for each of these streams. The last one has a number that differs from the correct one by this much.
    Batch(Vec<usize>, i64),
    /// At most this many events.
    Trim(usize, u64),
    Replay(u64, usize),
    Changes(usize),
}

pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    let stream = 0..STREAMS;
    let offset = prop_oneof![3 => Just(0_i64), 1 => -2..3_i64];
    let op = prop_oneof![
        4 => stream.clone().prop_map(Op::Append),
        2 => (stream.clone(), offset.clone()).prop_map(|(stream, offset)| Op::Stamped(stream, offset)),
        2 => (prop::collection::vec(stream.clone(), 1..6), offset).prop_map(|(streams, offset)| Op::Batch(streams, offset)),
        1 => (stream, 0..9_u64).prop_map(|(stream, count)| Op::Trim(stream, count)),
        2 => (0..20_u64, 1..8_usize).prop_map(|(after, limit)| Op::Replay(after, limit)),
        2 => (1..5_usize).prop_map(Op::Changes),
    ];
    prop::collection::vec(op, 1..40)
}

#[derive(Default)]
struct Stream {
    low_water: u64,
    high_water: u64,
}

/// Runs the operations on streams whose keys have this prefix, which must be unique to this run.
pub(crate) async fn run(store: &dyn Store, trim: impl AsyncFn(&str, u64) -> u64, prefix: &str, ops: Vec<Op>) {
    let keys: Vec<Arc<str>> = (0..STREAMS).map(|stream| format!("{prefix}/{stream}").into()).collect();
    let mut streams: BTreeMap<usize, Stream> = (0..STREAMS).map(|stream| (stream, Stream::default())).collect();
    let mut changed = BTreeSet::new();
    let mut watermark: Watermark = all_changes(store, None, 1000).await.1;
    // Every event's text contains its number, so texts are checked, too.
    let text = |seq: u64| format!("event {seq}");
    for op in ops {
        match op {
            Op::Append(stream) => {
                let next = streams[&stream].high_water + 1;
                assert_eq!(
                    store.append(event(&keys[stream], &text(next))).await.unwrap().seq(),
                    next
                );
                streams.get_mut(&stream).unwrap().high_water = next;
                changed.insert(stream);
            }
            Op::Stamped(stream, offset) => {
                let next = streams[&stream].high_water + 1;
                let given = next.saturating_add_signed(offset);
                let result = store.append(event(&keys[stream], &text(next)).with_seq(given)).await;
                if given == next || given == 0 {
                    assert_eq!(result.unwrap().seq(), next);
                    streams.get_mut(&stream).unwrap().high_water = next;
                    changed.insert(stream);
                } else {
                    let refused = matches!(result, Err(StoreError::SeqConflict { expected, actual, .. })
                        if (expected, actual) == (next, given));
                    assert!(refused, "{result:?}");
                }
            }
            Op::Batch(batch, offset) => {
                let mut heads: BTreeMap<usize, u64> = streams
                    .iter()
                    .map(|(&stream, state)| (stream, state.high_water))
                    .collect();
                let mut events = Vec::new();
                for &stream in &batch {
                    let head = heads.get_mut(&stream).unwrap();
                    *head += 1;
                    events.push(event(&keys[stream], &text(*head)));
                }
                let last = heads[batch.last().unwrap()];
                let given = last.saturating_add_signed(offset);
                let stamped = events.pop().unwrap().with_seq(given);
                events.push(stamped);
                let result = store.append_batch(events).await;
                if given == last || given == 0 {
                    assert_eq!(result.unwrap().last().unwrap().seq(), last);
                    changed.extend(batch);
                    for (stream, head) in heads {
                        streams.get_mut(&stream).unwrap().high_water = head;
                    }
                } else {
                    assert!(matches!(result, Err(StoreError::SeqConflict { .. })), "{result:?}");
                }
            }
            Op::Trim(stream, count) => {
                let state = streams.get_mut(&stream).unwrap();
                let through = (state.low_water + count).min(state.high_water);
                assert_eq!(
                    trim(&keys[stream], state.low_water + count).await,
                    through - state.low_water
                );
                state.low_water = through;
            }
            Op::Replay(after, limit) => {
                let ranges: Vec<ReplayRange> = keys
                    .iter()
                    .map(|key| ReplayRange {
                        stream_key: Arc::clone(key),
                        after,
                    })
                    .collect();
                let pages = store.replay_many(&ranges, limit).await.unwrap();
                for (page, (stream, state)) in pages.iter().zip(&streams) {
                    assert_eq!(page.low_water, state.low_water);
                    let expected: Vec<_> = (after.max(state.low_water) + 1..=state.high_water)
                        .take(limit)
                        .map(|seq| event(&keys[*stream], &text(seq)).with_seq(seq))
                        .collect();
                    let read: Vec<_> = page
                        .records
                        .iter()
                        .map(|record| record.event.clone().unwrap())
                        .collect();
                    assert_eq!(read, expected);
                }
            }
            Op::Changes(limit) => {
                let (mut heads, next, complete) = all_changes(store, Some(&watermark), limit).await;
                heads.sort();
                let expected: Vec<(String, u64)> = changed
                    .iter()
                    .map(|stream| (keys[*stream].to_string(), streams[stream].high_water))
                    .collect();
                assert_eq!((heads, complete), (expected, false));
                changed.clear();
                watermark = next;
            }
        }
        let high_waters: Vec<u64> = streams.values().map(|state| state.high_water).collect();
        assert_eq!(super::high_waters(store, &keys).await, high_waters);
    }
}
