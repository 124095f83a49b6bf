//! Cluster events on several threads: emitters, and consoles that splice, lag and splice again.

use std::sync::Arc;
use std::thread;

use doorbell::cluster::{ClusterEventMeta, ClusterEventPublisher, Resync};
use futures::StreamExt;
use futures::executor::block_on;
use testkit::account::{Account, Sequence};

#[allow(dead_code, reason = "each test file uses a part of it")]
mod cluster_support;

use cluster_support::{Service, State, capacity};

const EMITTERS: u64 = 3;
const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };

#[test]
fn numbers_and_order_agree() {
    let publisher =
        ClusterEventPublisher::<(u64, u64, ClusterEventMeta)>::with_capacity(capacity((EMITTERS * EACH) as usize));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = publisher.subscribe(0);
            thread::spawn(move || {
                block_on(async {
                    let mut emitters = Account::<u64>::new(Sequence::at(0));
                    let mut seqs = Sequence::after(0);
                    while let Some(item) = stream.next().await {
                        let (emitter, index, meta) = item.expect("the capacity holds every event");
                        emitters.stream(&emitter).received(index);
                        seqs.received(meta.cluster_seq);
                    }
                    (emitters, seqs)
                })
            })
        })
        .collect();
    let emitters: Vec<_> = (0..EMITTERS)
        .map(|emitter| {
            let publisher = publisher.clone();
            thread::spawn(move || {
                let mut last = 0;
                for index in 0..EACH {
                    let (_, _, meta) = publisher.emit(|meta| (emitter, index, meta));
                    assert!(meta.cluster_seq > last);
                    last = meta.cluster_seq;
                }
            })
        })
        .collect();
    drop(publisher);
    for emitter in emitters {
        emitter.join().unwrap();
    }
    for reader in readers {
        let (emitters, seqs) = reader.join().unwrap();
        emitters.assert_sound("the emitters");
        seqs.assert_sound("the sequence numbers");
        assert_eq!(seqs.last(), EMITTERS * EACH);
    }
}

/// Runs emitters and consoles. Every console must end with the service's state.
fn assert_consoles_match(size: usize, watch: impl Fn(Arc<Service>) -> State + Send + Copy + 'static) {
    let service = Arc::new(Service::new(ClusterEventPublisher::with_capacity(capacity(size))));
    let consoles: Vec<_> = (0..2)
        .map(|_| {
            let service = service.clone();
            thread::spawn(move || watch(service))
        })
        .collect();
    let emitters: Vec<_> = (0..EMITTERS)
        .map(|emitter| {
            let service = service.clone();
            thread::spawn(move || {
                for index in 0..EACH {
                    service.change(emitter * EACH + index);
                }
            })
        })
        .collect();
    for emitter in emitters {
        emitter.join().unwrap();
    }
    let expected = *service.lock();
    for console in consoles {
        assert_eq!(console.join().unwrap(), expected, "capacity {size}");
    }
}

/// The number of the last change. A console stops there.
const LAST: u64 = EMITTERS * EACH;

#[test]
fn consoles_that_splice_again_after_each_lag_match_the_service() {
    for size in [1, 4, 1024] {
        assert_consoles_match(size, |service| {
            block_on(async {
                loop {
                    let mut spliced = service.publisher.splice(|seam| service.marked(&seam));
                    let mut state = spliced.snapshot;
                    let mut seen = spliced.as_of_seq;
                    while seen < LAST {
                        match spliced.deltas.next().await.expect("the publisher is alive") {
                            Ok(change) => {
                                assert_eq!(change.seq, seen + 1, "no gap and no duplicate");
                                seen = change.seq;
                                state.apply(change.value);
                            }
                            Err(lagged) => {
                                assert!(lagged.skipped >= 1);
                                break;
                            }
                        }
                    }
                    if seen == LAST {
                        return state;
                    }
                }
            })
        });
    }
}

#[test]
fn consoles_that_resync_match_the_service() {
    for size in [2, 64] {
        assert_consoles_match(size, |service| {
            let source = service.clone();
            let mut console = service
                .publisher
                .resync(move |seam| std::future::ready(source.marked(&seam)));
            block_on(async {
                let mut state = State::default();
                loop {
                    match console.next().await.expect("the publisher is alive") {
                        Resync::Snapshot(snapshot) => state = snapshot,
                        Resync::Delta(change) => state.apply(change.value),
                    }
                    if state.changes() == LAST {
                        return state;
                    }
                }
            })
        });
    }
}
