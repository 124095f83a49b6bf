//! The drop-in on a runtime and on threads: every receiver accounts for every message.

use std::collections::HashMap;
use std::thread;

use doorbell::broadcast::error::RecvError;
use doorbell::broadcast::{self, Receiver};
use doorbell::ring::Wake;
use testkit::threads::{join_all, must_end};

const SENDERS: u64 = 3;
const EACH: u64 = 5_000;

/// What a receiver got: messages, messages missed, and the latest number of each sender.
#[derive(Default)]
struct Account {
    received: u64,
    missed: u64,
    latest: HashMap<u64, u64>,
}

impl Account {
    /// False at the end.
    fn enter(&mut self, result: Result<(u64, u64), RecvError>) -> bool {
        match result {
            Ok((sender, number)) => {
                self.received += 1;
                let before = self.latest.insert(sender, number);
                assert!(before < Some(number), "sender {sender}: {number} after {before:?}");
            }
            Err(RecvError::Lagged(skipped)) => self.missed += skipped,
            Err(RecvError::Closed) => return false,
        }
        true
    }

    fn check(&self) {
        assert_eq!(self.received + self.missed, SENDERS * EACH);
    }
}

async fn account(mut rx: Receiver<(u64, u64)>) -> Account {
    let mut account = Account::default();
    while account.enter(rx.recv().await) {}
    account
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
            let tasks: Vec<_> = receivers.into_iter().map(|rx| tokio::spawn(account(rx))).collect();
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
                let mut account = Account::default();
                while account.enter(rx.blocking_recv()) {}
                account
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
        for account in join_all(readers) {
            account.check();
        }
    });
}
