//! The drop-in on a runtime and on threads: every receiver accounts for every message.

use std::thread;

use doorbell::broadcast::error::RecvError;
use doorbell::broadcast::{self, Receiver};
use doorbell::ring::Wake;
use testkit::account::{Account, Holes, Sequence};
use testkit::threads::{join_all, must_end};

const SENDERS: u64 = 3;
const EACH: u64 = 5_000;

/// What a receiver got.
struct Receipts {
    messages: Sequence,
    /// The numbers of each sender, some of which are missed.
    senders: Account<u64>,
}

impl Receipts {
    fn new() -> Self {
        Self {
            messages: Sequence::after(0),
            senders: Account::new(Sequence::from_first().holes(Holes::Allowed)),
        }
    }

    /// Records the result of one receive. False at the end.
    fn record(&mut self, result: Result<(u64, u64), RecvError>) -> bool {
        match result {
            Ok((sender, number)) => {
                self.messages.received_unnumbered();
                self.senders.stream(&sender).received(number);
            }
            Err(RecvError::Lagged(skipped)) => self.messages.skipped_next(skipped),
            Err(RecvError::Closed) => return false,
        }
        true
    }

    fn check(&self) {
        self.senders.assert_sound("the senders");
        assert_eq!(self.messages.counts().accounted(), SENDERS * EACH);
    }
}

async fn receive(mut rx: Receiver<(u64, u64)>) -> Receipts {
    let mut receipts = Receipts::new();
    while receipts.record(rx.recv().await) {}
    receipts
}

fn on_a_runtime(capacity: usize, wake: Wake) {
    must_end(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (tx, first) = broadcast::channel_with(capacity, wake);
            let mut receivers: Vec<_> = (0..20).map(|_| tx.subscribe()).collect();
            receivers.push(first);
            let tasks: Vec<_> = receivers.into_iter().map(|rx| tokio::spawn(receive(rx))).collect();
            let senders = (0..SENDERS).map(|sender| {
                let tx = tx.clone();
                tokio::spawn(async move {
                    for number in 0..EACH {
                        assert_eq!(tx.send((sender, number)).unwrap(), 21);
                        if number % 16 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                })
            });
            for sender in senders.collect::<Vec<_>>() {
                sender.await.unwrap();
            }
            drop(tx);
            for task in tasks {
                task.await.unwrap().check();
            }
        });
    });
}

#[test]
fn tasks_account_for_every_message() {
    on_a_runtime(64, Wake::All);
    on_a_runtime(1, Wake::All);
}

#[test]
fn tasks_account_for_every_message_with_cascading_wakes() {
    on_a_runtime(64, Wake::Cascade);
}

#[test]
fn threads_account_for_every_message() {
    must_end(|| {
        let (tx, first) = broadcast::channel(32);
        let receivers = [first, tx.subscribe(), tx.subscribe()];
        let readers = receivers.map(|mut rx| {
            thread::spawn(move || {
                let mut receipts = Receipts::new();
                while receipts.record(rx.blocking_recv()) {}
                receipts
            })
        });
        let senders = (0..SENDERS).map(|sender| {
            let tx = tx.clone();
            thread::spawn(move || {
                for number in 0..EACH {
                    tx.send((sender, number)).unwrap();
                }
            })
        });
        join_all(senders.collect::<Vec<_>>());
        drop(tx);
        for receipts in join_all(readers) {
            receipts.check();
        }
    });
}
