//! The common suite: what every store must do. Each function takes an empty store; `run` runs all of them.

pub(crate) mod model;

use std::sync::Arc;

use doorbell::bus::{FleetEvent, FleetEventKind, StreamEvent};
use doorbell::store::{MAX_STREAM_KEY_BYTES, ReplayRange, Store, StoreError};

/// What a store supports beyond the three required methods.
#[derive(Clone, Copy)]
pub(crate) struct Abilities {
    /// Appends a batch completely or not at all.
    pub(crate) atomic_batches: bool,
    /// Refuses invalid stream keys.
    pub(crate) checks_keys: bool,
    /// Tracks changes, event IDs and times.
    pub(crate) tracks_history: bool,
}

pub(crate) fn event(stream_key: &str, text: &str) -> FleetEvent {
    FleetEvent::custom(stream_key, "note", text)
}

fn text(event: &FleetEvent) -> &str {
    match &event.kind {
        FleetEventKind::Custom { data, .. } => data,
        other => panic!("not an event of this suite: {other:?}"),
    }
}

/// Reads all events of a stream above `after`, in pages of `limit`.
pub(crate) async fn read_all(store: &dyn Store, stream_key: &str, after: u64, limit: usize) -> Vec<FleetEvent> {
    let mut events: Vec<FleetEvent> = Vec::new();
    let mut after = after;
    loop {
        let page = store.replay(stream_key, after, limit).await.unwrap();
        assert!(page.records.len() <= limit);
        let count = page.records.len();
        for record in page.records {
            assert_eq!(record.seq, after.max(page.low_water) + 1, "a gap");
            let event = record.event.unwrap();
            assert_eq!(event.seq(), record.seq);
            after = record.seq;
            events.push(event);
        }
        if count < limit {
            return events;
        }
    }
}

pub(crate) async fn numbers_and_pages(store: Arc<dyn Store>) {
    for number in 1..=10_u64 {
        let stamped = store.append(event("a", &number.to_string())).await.unwrap();
        assert_eq!(stamped, event("a", &number.to_string()).with_seq(number));
    }
    assert_eq!(store.append(event("b", "other")).await.unwrap().seq(), 1);
    assert_eq!(store.high_water("a").await.unwrap(), 10);
    assert_eq!(store.high_water("missing").await.unwrap(), 0);
    assert!(store.replay("missing", 0, 5).await.unwrap().records.is_empty());
    for limit in [1, 3, 5, 10, 11, usize::MAX] {
        let events = read_all(&*store, "a", 0, limit).await;
        let texts: Vec<&str> = events.iter().map(text).collect();
        assert_eq!(texts, ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    }
    assert_eq!(read_all(&*store, "a", 7, 2).await.len(), 3);
    for beyond in [10, 11, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
        let page = store.replay("a", beyond, 5).await.unwrap();
        assert!(page.records.is_empty());
        assert_eq!(page.low_water, 0);
    }
}

/// An event with a number must be the next of its stream.
pub(crate) async fn stamped_events(store: Arc<dyn Store>) {
    assert_eq!(store.append(event("a", "1").with_seq(1)).await.unwrap().seq(), 1);
    for wrong in [1, 3, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
        match store.append(event("a", "x").with_seq(wrong)).await {
            Err(StoreError::SeqConflict {
                stream_key,
                expected,
                actual,
            }) => {
                assert_eq!((stream_key.as_str(), expected, actual), ("a", 2, wrong));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(store.append(event("a", "2").with_seq(2)).await.unwrap().seq(), 2);
    assert_eq!(read_all(&*store, "a", 0, 10).await.len(), 2);
}

/// Reads of several streams return them in the requested order, duplicates included.
pub(crate) async fn many_streams(store: Arc<dyn Store>) {
    for stream_key in ["c", "a", "b", "a"] {
        store.append(event(stream_key, "x")).await.unwrap();
    }
    let keys: Vec<Arc<str>> = ["b", "missing", "a", "a", "c"].into_iter().map(Arc::from).collect();
    assert_eq!(high_waters(&*store, &keys).await, [1, 0, 2, 2, 1]);
    assert_eq!(high_waters(&*store, &[]).await, [0; 0]);
    let range = |stream_key: &str, after| ReplayRange {
        stream_key: stream_key.into(),
        after,
    };
    let ranges = [
        range("b", 0),
        range("missing", 0),
        range("a", 1),
        range("a", 0),
        range("c", 1),
    ];
    let pages = store.replay_many(&ranges, 10).await.unwrap();
    let seqs: Vec<Vec<u64>> = pages
        .iter()
        .map(|page| page.records.iter().map(|record| record.seq).collect())
        .collect();
    assert_eq!(seqs, [vec![1], vec![], vec![2], vec![1, 2], vec![]]);
    let pages = store.replay_many(&ranges, 1).await.unwrap();
    assert_eq!(pages[3].records.len(), 1);
    assert!(store.replay_many(&[], 1).await.unwrap().is_empty());
}

/// Batches keep their order, and numbering continues within a batch.
pub(crate) async fn batches(store: Arc<dyn Store>) {
    let batch = vec![
        event("z", "1"),
        event("a", "1"),
        event("z", "2").with_seq(2),
        event("a", "2"),
        event("m", "1"),
    ];
    let stamped = store.append_batch(batch.clone()).await.unwrap();
    let seqs: Vec<u64> = stamped.iter().map(StreamEvent::seq).collect();
    assert_eq!(seqs, [1, 1, 2, 2, 1]);
    for (given, stamped) in batch.into_iter().zip(stamped) {
        let seq = stamped.seq();
        assert_eq!(given.with_seq(seq), stamped);
    }
    assert_eq!(read_all(&*store, "z", 0, 10).await.len(), 2);
    assert!(store.append_batch(Vec::new()).await.unwrap().is_empty());
}

/// If one event is refused, nothing of its batch is written.
pub(crate) async fn batches_are_atomic(store: Arc<dyn Store>) {
    store.append(event("a", "1")).await.unwrap();
    let batch = vec![
        event("new", "1"),
        event("a", "2"),
        event("a", "3").with_seq(9),
        event("b", "1"),
    ];
    match store.append_batch(batch).await {
        Err(StoreError::SeqConflict {
            stream_key,
            expected,
            actual,
        }) => {
            assert_eq!((stream_key.as_str(), expected, actual), ("a", 3, 9));
        }
        other => panic!("{other:?}"),
    }
    let keys: Vec<Arc<str>> = ["new", "a", "b"].into_iter().map(Arc::from).collect();
    assert_eq!(high_waters(&*store, &keys).await, [0, 1, 0]);
    let batch = vec![event("new", "1"), event("", "1")];
    assert!(matches!(
        store.append_batch(batch).await,
        Err(StoreError::InvalidStreamKey(_))
    ));
    assert_eq!(store.append_batch(vec![event("new", "1")]).await.unwrap()[0].seq(), 1);
}

/// P7: unusual keys work, and invalid keys are refused.
pub(crate) async fn p7_keys(store: Arc<dyn Store>) {
    let longest = "k".repeat(MAX_STREAM_KEY_BYTES);
    let emoji = "🔔".repeat(MAX_STREAM_KEY_BYTES / 4);
    let keys = [
        "k",
        "repo:foo:bar",
        "it's",
        "\"quoted\"",
        "line\nbreak\r\n",
        "tab\t",
        "back\\slash",
        "🔔",
        "ä",
        "a\u{308}",
        "%s$1{}",
        " ",
        "\u{1}",
        "\u{1f}",
        "\u{7f}",
        "\u{feff}",
        "-1:2",
        ":",
        "null",
        &longest,
        &emoji,
    ];
    for (number, key) in keys.iter().enumerate() {
        let stamped = store.append(event(key, &number.to_string())).await.unwrap();
        assert_eq!(stamped.seq(), 1, "{key:?} is mixed up with another stream");
    }
    for (number, key) in keys.iter().enumerate() {
        let events = read_all(&*store, key, 0, 10).await;
        assert_eq!(events, [event(key, &number.to_string()).with_seq(1)]);
        assert_eq!(store.high_water(key).await.unwrap(), 1);
    }
    let too_long = "k".repeat(MAX_STREAM_KEY_BYTES + 1);
    let too_long_in_bytes = format!("{emoji}ä");
    for key in ["", "a\0b", "\0", "a\u{1e}b", &too_long, &too_long_in_bytes] {
        let refused = store.append(event(key, "x")).await;
        assert!(
            matches!(refused, Err(StoreError::InvalidStreamKey(_))),
            "{key:?}: {refused:?}"
        );
        // Reading finds nothing, or is refused.
        if let Ok(page) = store.replay(key, 0, 10).await {
            assert!(page.records.is_empty());
        }
    }
}

/// Unusual texts are stored unchanged.
pub(crate) async fn texts(store: Arc<dyn Store>) {
    let long = "long ".repeat(100_000);
    let texts = [
        "",
        "\"",
        "\\",
        "\\u0000",
        "\n\r\t\u{1}\u{1f}\u{7f}",
        "🔔\u{10ffff}\u{fffd}",
        "'; DROP TABLE events; --",
        &long,
    ];
    for sent in texts {
        store.append(event("a", sent)).await.unwrap();
    }
    let events = read_all(&*store, "a", 0, 3).await;
    assert_eq!(events.iter().map(text).collect::<Vec<_>>(), texts);
}

/// Every change is on a page or after the watermark, and unchanged streams are not listed.
pub(crate) async fn changes(store: Arc<dyn Store>) {
    let empty = store.changed_since(None, 10).await.unwrap().unwrap();
    assert!(empty.streams.is_empty() && empty.complete && !empty.more);
    for number in 0..7 {
        for _ in 0..=number {
            store.append(event(&format!("stream-{number}"), "x")).await.unwrap();
        }
    }
    for limit in [1, 2, 7, 8] {
        let (mut heads, watermark, complete) = all_changes(&*store, Some(&empty.watermark), limit).await;
        heads.sort();
        let expected: Vec<(String, u64)> = (0..7).map(|number| (format!("stream-{number}"), number + 1)).collect();
        assert_eq!(heads, expected, "pages of {limit}");
        assert!(!complete);
        assert!(all_changes(&*store, Some(&watermark), limit).await.0.is_empty());
        let (mut heads, _, complete) = all_changes(&*store, None, limit).await;
        heads.sort();
        assert_eq!(heads, expected);
        assert!(complete);
    }
    let (_, watermark, _) = all_changes(&*store, None, 100).await;
    store.append(event("stream-3", "y")).await.unwrap();
    store.append(event("stream-new", "y")).await.unwrap();
    let (mut heads, later, _) = all_changes(&*store, Some(&watermark), 100).await;
    heads.sort();
    assert_eq!(heads, [("stream-3".to_owned(), 5), ("stream-new".to_owned(), 1)]);
    assert!(all_changes(&*store, Some(&later), 1).await.0.is_empty());
}

/// Reads all pages. Returns keys and high-water marks in the order of the list, the last watermark, and whether the list is complete.
pub(crate) async fn all_changes(
    store: &dyn Store,
    since: Option<&doorbell::store::Watermark>,
    limit: usize,
) -> (Vec<(String, u64)>, doorbell::store::Watermark, bool) {
    let mut heads = Vec::new();
    let mut since = since.cloned();
    let mut complete = None;
    loop {
        let page = store.changed_since(since.as_ref(), limit).await.unwrap().unwrap();
        assert!(page.streams.len() <= limit);
        assert_eq!(*complete.get_or_insert(page.complete), page.complete);
        heads.extend(
            page.streams
                .into_iter()
                .map(|stream| (stream.stream_key.to_string(), stream.head.seq)),
        );
        if !page.more {
            return (heads, page.watermark, page.complete);
        }
        since = Some(page.watermark);
    }
}

/// Returns the number of each stream's last event.
pub(crate) async fn high_waters(store: &dyn Store, keys: &[Arc<str>]) -> Vec<u64> {
    let heads = store.heads(keys).await.unwrap().streams;
    heads.into_iter().map(|head| head.seq).collect()
}

/// Every event has the ID of the one before it, however it was appended, and whether or not that one is still there.
///
/// `trim` removes the events of a stream up to a number.
pub(crate) async fn chain(store: Arc<dyn Store>, trim: impl AsyncFn(&str, u64)) {
    let mut appended = vec![store.append_record(event("a", "1")).await.unwrap()];
    let batch = [event("a", "2"), event("b", "1"), event("a", "3"), event("b", "2")];
    appended.extend(store.append_records(batch.into()).await.unwrap());
    appended.push(store.append_record(event("a", "4")).await.unwrap());
    let of = |key: &str| -> Vec<_> {
        let of_stream = appended
            .iter()
            .filter(|record| record.event.as_ref().unwrap().agent_id == key);
        of_stream
            .map(|record| (record.seq, record.id, record.previous_id))
            .collect()
    };
    let (a, b) = (of("a"), of("b"));
    assert_eq!((a.len(), b.len()), (4, 2));
    let check = async |key: &str, after: usize, expected: &[_]| {
        let page = store.replay(key, after as u64, 10).await.unwrap();
        let read: Vec<_> = page
            .records
            .iter()
            .map(|record| (record.seq, record.id, record.previous_id))
            .collect();
        assert_eq!(read, expected[after..], "{key} after {after}");
    };
    for (key, chain) in [("a", &a), ("b", &b)] {
        assert_eq!(chain[0].2, None);
        for pair in chain.windows(2) {
            assert!(pair[0].1.is_some());
            assert_eq!(pair[1].2, pair[0].1);
        }
        for after in 0..chain.len() {
            check(key, after, chain).await;
        }
    }
    let keys: Vec<Arc<str>> = ["b", "missing", "a"].into_iter().map(Arc::from).collect();
    let heads = async || {
        let heads = store.heads(&keys).await.unwrap().streams;
        heads.iter().map(|head| (head.seq, head.id)).collect::<Vec<_>>()
    };
    let expected = [(2, b[1].1), (0, None), (4, a[3].1)];
    assert_eq!(heads().await, expected);
    // A stream that is emptied keeps the ID of its last event.
    trim("a", 2).await;
    trim("b", 9).await;
    check("a", 2, &a).await;
    assert_eq!(heads().await, expected);
    let changes = store.changed_since(None, 10).await.unwrap().unwrap();
    let mut listed: Vec<_> = changes
        .streams
        .iter()
        .map(|stream| (stream.head.seq, stream.head.id))
        .collect();
    listed.sort();
    assert_eq!(listed, [expected[0], expected[2]]);
    let positions: Vec<(Arc<str>, u64)> = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)]
        .map(|(key, seq)| (key.into(), seq))
        .into();
    let ids = store.event_ids(&positions).await.unwrap();
    assert_eq!(ids, [None, a[1].1, a[2].1, None, b[1].1]);
    let next = store
        .append_records(vec![event("b", "3"), event("a", "5")])
        .await
        .unwrap();
    assert_eq!((next[0].seq, next[0].previous_id), (3, b[1].1));
    assert_eq!((next[1].seq, next[1].previous_id), (5, a[3].1));
}

/// Every event has a unique ID, and every method returns the same one.
pub(crate) async fn event_ids(store: Arc<dyn Store>) {
    store
        .append_batch(vec![event("a", "1"), event("a", "2"), event("b", "1")])
        .await
        .unwrap();
    let positions: Vec<(Arc<str>, u64)> = [
        ("a", 1),
        ("b", 1),
        ("a", 3),
        ("a", 2),
        ("missing", 1),
        ("a", 0),
        ("a", u64::MAX),
    ]
    .map(|(key, seq)| (key.into(), seq))
    .into();
    let ids = store.event_ids(&positions).await.unwrap();
    let exists: Vec<bool> = ids.iter().map(Option::is_some).collect();
    assert_eq!(exists, [true, true, false, true, false, false, false]);
    assert!(ids[0] != ids[1] && ids[0] != ids[3] && ids[1] != ids[3]);
    let page = store.replay("a", 0, 10).await.unwrap();
    assert_eq!([page.records[0].id, page.records[1].id], [ids[0], ids[3]]);
    assert!(page.records[0].appended_at.unwrap() <= page.records[1].appended_at.unwrap());
    assert!(store.event_ids(&[]).await.unwrap().is_empty());
    // Appending returns the ID.
    let mut appended = vec![store.append_record(event("a", "3")).await.unwrap()];
    appended.extend(
        store
            .append_records(vec![event("b", "2"), event("a", "4")])
            .await
            .unwrap(),
    );
    assert_eq!(appended.iter().map(|record| record.seq).collect::<Vec<_>>(), [3, 2, 4]);
    for record in appended {
        let stamped = record.event.unwrap();
        assert_eq!(stamped.seq(), record.seq);
        let page = store.replay(stamped.stream_key(), record.seq - 1, 1).await.unwrap();
        assert_eq!(
            (page.records[0].id, page.records[0].appended_at),
            (record.id, record.appended_at)
        );
        assert!(record.id.is_some() && record.appended_at.is_some());
    }
}

/// Runs the suite. `fresh` returns an empty store each time.
pub(crate) async fn run<F: AsyncFnMut() -> Arc<dyn Store>>(mut fresh: F, abilities: Abilities) {
    numbers_and_pages(fresh().await).await;
    stamped_events(fresh().await).await;
    many_streams(fresh().await).await;
    batches(fresh().await).await;
    texts(fresh().await).await;
    if abilities.atomic_batches {
        batches_are_atomic(fresh().await).await;
    }
    if abilities.checks_keys {
        p7_keys(fresh().await).await;
    }
    if abilities.tracks_history {
        changes(fresh().await).await;
        event_ids(fresh().await).await;
    } else {
        let store = fresh().await;
        store.append(event("a", "1")).await.unwrap();
        assert!(store.changed_since(None, 1).await.unwrap().is_none());
        assert_eq!(store.event_ids(&[("a".into(), 1)]).await.unwrap(), [None]);
    }
}
