//! Connections end while many appends share transactions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use doorbell::bus::{FleetEvent, StreamEvent as _};
use doorbell::store::{PostgresStore, Store as _, StoreError};
use throwaway_postgres::Server;

use crate::store_suite::event;

const WRITERS: usize = 24;
const STREAMS: usize = 7;
/// Appends that failed, after which there have been enough.
const ENOUGH_FAILURES: usize = 60;

/// What a writer has been told of its appends: the text, and the number if it was appended.
type Told = Vec<(String, Option<u64>)>;

async fn write(store: PostgresStore, writer: usize, failures: Arc<AtomicUsize>) -> Told {
    let mut told = Told::new();
    let mut number = 0;
    while failures.load(Ordering::Relaxed) < ENOUGH_FAILURES {
        number += 1;
        let (stream, text) = (
            format!("stream-{}", (writer + number) % STREAMS),
            format!("{writer}/{number}"),
        );
        // Now and then one that is refused, which nobody else is to notice.
        let refused = number % 10 == 0;
        let event = event(&stream, &text);
        let event = if refused { event.with_seq(u64::MAX) } else { event };
        match store.append(event).await {
            Ok(appended) => told.push((text, Some(appended.seq()))),
            Err(StoreError::SeqConflict { .. }) if refused => {}
            Err(StoreError::Unavailable { .. }) => {
                failures.fetch_add(1, Ordering::Relaxed);
                told.push((text, None)); // it may have been appended all the same
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_append_is_what_its_writer_was_told() {
    let server = Arc::new(Server::start().unwrap());
    let url = format!("{}?application_name=appends", server.url());
    let store = PostgresStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let (failures, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(store.clone(), writer, Arc::clone(&failures))))
        .collect();
    let killer = std::thread::spawn({
        let (server, over) = (Arc::clone(&server), Arc::clone(&over));
        move || {
            while !over.load(Ordering::Relaxed) {
                for pid in server.backends("appends").unwrap() {
                    server.terminate_backend(pid).unwrap();
                }
            }
        }
    });
    let mut told = HashMap::new();
    for writer in writers {
        told.extend(writer.await.unwrap());
    }
    over.store(true, Ordering::Relaxed);
    killer.join().unwrap();

    let store = PostgresStore::connect(&server.url()).await.unwrap();
    let mut found = 0;
    for stream in 0..STREAMS {
        let stream = format!("stream-{stream}");
        let page = store.replay(&stream, 0, usize::MAX).await.unwrap();
        for (record, seq) in page.records.into_iter().zip(1..) {
            assert_eq!(record.seq, seq, "no gap");
            let text = text(&record.event.unwrap());
            match told.remove(&text) {
                Some(Some(appended)) => {
                    assert_eq!(appended, seq, "{text}");
                    found += 1;
                }
                Some(None) => {}
                None => panic!("{text} was appended twice, or by nobody"),
            }
        }
    }
    assert!(found > 0);
    let lost: Vec<_> = told.iter().filter(|(_, appended)| appended.is_some()).collect();
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
