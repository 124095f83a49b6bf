//! Connections are terminated while concurrent appends share transactions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use doorbell::bus::{FleetEvent, StreamEvent as _};
use doorbell::store::{PostgresStore, Store as _, StoreError};
use throwaway_postgres::Server;

use crate::store_suite::event;

const WRITERS: usize = 24;
const STREAMS: usize = 7;
/// The test ends after this many appends have failed.
const ENOUGH_FAILURES: usize = 60;

/// The results of a writer's appends: each event's text, and its number if the append succeeded.
type Results = Vec<(String, Option<u64>)>;

/// Appends for as long as connections are terminated.
async fn write(
    store: PostgresStore,
    writer: usize,
    killer: Arc<JoinHandle<()>>,
    failures: Arc<AtomicUsize>,
) -> Results {
    let mut results = Results::new();
    let mut number = 0;
    while !killer.is_finished() {
        number += 1;
        let (stream, text) = (
            format!("stream-{}", (writer + number) % STREAMS),
            format!("{writer}/{number}"),
        );
        // Every tenth append is refused, which must not affect the others.
        let refused = number % 10 == 0;
        let event = event(&stream, &text);
        let event = if refused { event.with_seq(u64::MAX) } else { event };
        match store.append(event).await {
            Ok(appended) => results.push((text, Some(appended.seq()))),
            Err(StoreError::SeqConflict { .. }) if refused => {}
            Err(StoreError::Unavailable { .. }) => {
                failures.fetch_add(1, Ordering::Relaxed);
                results.push((text, None)); // the event may have been appended
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    results
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_report_the_truth_when_connections_are_terminated() {
    let server = Arc::new(Server::start().unwrap());
    let url = format!("{}?application_name=appends", server.url());
    let store = PostgresStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let failures = Arc::<AtomicUsize>::default();
    let killer = Arc::new(std::thread::spawn({
        let (server, failures) = (Arc::clone(&server), Arc::clone(&failures));
        move || {
            while failures.load(Ordering::Relaxed) < ENOUGH_FAILURES {
                server.terminate_backends("appends").unwrap();
            }
        }
    }));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(store.clone(), writer, Arc::clone(&killer), Arc::clone(&failures))))
        .collect();
    let mut results = HashMap::new();
    for writer in writers {
        results.extend(writer.await.unwrap());
    }
    Arc::into_inner(killer).unwrap().join().unwrap();

    let store = PostgresStore::connect(&server.url()).await.unwrap();
    let mut found = 0;
    for stream in 0..STREAMS {
        let stream = format!("stream-{stream}");
        let page = store.replay(&stream, 0, usize::MAX).await.unwrap();
        for (record, seq) in page.records.into_iter().zip(1..) {
            assert_eq!(record.seq, seq, "no gap");
            let text = text(&record.event.unwrap());
            match results.remove(&text) {
                Some(Some(appended)) => {
                    assert_eq!(appended, seq, "{text}");
                    found += 1;
                }
                Some(None) => {}
                None => panic!("{text} was appended twice, or never"),
            }
        }
    }
    assert!(found > 0);
    let lost: Vec<_> = results.iter().filter(|(_, appended)| appended.is_some()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

fn text(event: &FleetEvent) -> String {
    let json = serde_json::to_value(event).unwrap();
    let writer_and_number =
        |value: &serde_json::Value| value.as_str().filter(|text| text.contains('/')).map(str::to_owned);
    let fields = json.as_object().unwrap().values();
    fields
        .clone()
        .find_map(writer_and_number)
        .unwrap_or_else(|| panic!("{json}"))
}
