//! The drop-in has tokio's API: the same code compiles and behaves the same under either `use` line. And handles convert.

use std::sync::Arc;

use doorbell::broadcast::error::{RecvError, TryRecvError};
use doorbell::broadcast::{self, Receiver, Sender};
use doorbell::ring::{self, Publisher, Start, Subscriber};
use testkit::panics::{must_panic, panic_message, planned_panic};
use testkit::threads::{block_on, poll_once};

macro_rules! surface {
    ($name:ident, $($broadcast:tt)+) => {
        mod $name {
            use std::error::Error;
            use std::fmt::{Debug, Display};
            use $($broadcast)+::error::{RecvError, SendError, TryRecvError};
            use $($broadcast)+::{self as broadcast, Receiver, Sender, WeakSender};

            /// The handles need no bounds to be named, and no more bounds than tokio's to be used.
            pub(crate) struct Hub<T> {
                tx: Sender<T>,
                weak: WeakSender<T>,
            }

            impl<T> Hub<T> {
                fn over(tx: Sender<T>) -> Self {
                    Self {
                        weak: tx.downgrade(),
                        tx,
                    }
                }

                fn send(&self, value: T) -> Result<usize, SendError<T>> {
                    self.weak.upgrade().unwrap_or_else(|| self.tx.clone()).send(value)
                }

                fn listen(&self) -> Receiver<T> {
                    self.tx.subscribe()
                }
            }

            async fn first<T: Clone>(mut rx: Receiver<T>) -> Option<T> {
                rx.recv().await.ok()
            }

            fn handle<H: Send + Sync + Unpin + Debug>(_: &H) {}
            fn sent<F: Send>(future: F) -> F {
                future
            }
            fn error<E: Error + Debug + Display + PartialEq + Eq + Clone + Send + Sync + 'static>(error: E) -> E {
                error
            }

            pub(crate) fn exercise() -> Vec<String> {
                let mut log = Vec::new();
                let (tx, rx) = broadcast::channel::<String>(3);
                handle(&tx);
                handle(&rx);
                handle(&tx.downgrade());
                let hub = Hub::over(tx);
                let mut second = hub.listen();
                for number in 0..6 {
                    log.push(format!("{:?}", hub.send(number.to_string()).ok()));
                }
                log.push(format!("{:?}", second.try_recv()));
                log.push(format!("{:?}", second.try_recv()));
                log.push(format!("{:?}", futures::executor::block_on(sent(second.recv()))));
                log.push(format!("{:?}", futures::executor::block_on(sent(first(rx)))));
                log.push(format!("{}", second.same_channel(&hub.listen())));
                let boxed: Box<dyn Error + Send + Sync> = Box::new(error(TryRecvError::Empty));
                log.push(format!("{boxed:?} {:?}", error(RecvError::Lagged(2))));
                drop(second);
                let SendError(value) = hub.send("nobody".into()).unwrap_err();
                log.push(value);
                futures::executor::block_on(sent(hub.tx.closed()));
                log
            }

            /// A channel of borrowed messages.
            pub(crate) fn borrowed() -> usize {
                let text = String::from("a b c");
                let (tx, mut rx) = broadcast::channel(4);
                for word in text.split(' ') {
                    tx.send(word).unwrap();
                }
                drop(tx);
                std::iter::from_fn(|| rx.try_recv().ok()).map(str::len).sum()
            }
        }
    };
}

surface!(theirs, tokio::sync::broadcast);
surface!(ours, doorbell::broadcast);

#[test]
fn the_same_code_behaves_the_same() {
    assert_eq!(ours::exercise(), theirs::exercise());
    assert_eq!(ours::borrowed(), theirs::borrowed());
}

#[test]
fn capacities_are_rounded_up_and_checked() {
    for (asked, given) in [(1, 1), (2, 2), (3, 4), (5, 8), (1000, 1024), (1024, 1024)] {
        let (tx, rx) = broadcast::channel::<u8>(asked);
        assert_eq!(rx.as_subscriber().capacity(), given);
        assert_eq!(Sender::<u8>::new(asked).as_publisher().capacity(), given);
        drop(tx);
    }
    assert!(panic_message(|| broadcast::channel::<u8>(0)).contains("at least 1"));
    assert!(panic_message(|| Sender::<u8>::new(0)).contains("at least 1"));
    assert!(panic_message(|| broadcast::channel::<u8>(usize::MAX / 2 + 1)).contains("limit"));
    assert!(panic_message(|| broadcast::channel::<u8>(usize::MAX)).contains("limit"));
    assert!(panic_message(|| broadcast::channel::<u8>(usize::MAX / 2)).contains("too large"));
}

#[test]
fn errors_have_their_own_messages() {
    let texts = [
        RecvError::Closed.to_string(),
        RecvError::Lagged(3).to_string(),
        TryRecvError::Empty.to_string(),
        broadcast::error::SendError(()).to_string(),
    ];
    assert!(texts[1].contains('3'));
    for (index, text) in texts.iter().enumerate() {
        assert!(!texts[..index].contains(text), "{text}");
    }
    assert_eq!(TryRecvError::Closed.to_string(), texts[0]);
    assert_eq!(TryRecvError::Lagged(3).to_string(), texts[1]);
}

/// At each step some handles on the channel are the drop-in's and some the ring's.
#[test]
fn handles_convert_one_by_one() {
    let (tx, rx) = broadcast::channel(8);
    let mut second = tx.subscribe();
    let publisher = Publisher::from(tx.clone());
    assert_eq!(publisher.publish("native"), 1);
    assert_eq!(tx.send("drop-in").unwrap(), 2);
    assert_eq!((tx.strong_count(), tx.receiver_count()), (2, 2));

    let mut subscriber = Subscriber::from(rx);
    assert_eq!(*subscriber.try_recv_ref().unwrap(), "native");
    assert_eq!(subscriber.try_recv_seq(), Ok((2, "drop-in")));
    assert_eq!(second.try_recv(), Ok("native"));
    assert_eq!(tx.len(), 1, "the second receiver has one message left");

    let mut again = Receiver::from(subscriber);
    assert_eq!(again.try_recv(), Err(TryRecvError::Empty));
    assert!(again.same_channel(&second));
    let sender = Sender::from(publisher);
    assert!(sender.same_channel(&tx));
    drop((tx, sender));
    assert_eq!(again.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(second.try_recv(), Ok("drop-in"));
    assert_eq!(second.try_recv(), Err(TryRecvError::Closed));
}

/// A ring keeps its own rules: its capacity, and where a receiver resumes after lag.
#[test]
fn a_native_ring_keeps_its_rules_behind_the_drop_in() {
    let (publisher, subscriber) = ring::channel(24);
    let (tx, mut rx) = (Sender::from(publisher), Receiver::from(subscriber));
    for number in 1..=30 {
        tx.send(number).unwrap();
    }
    assert_eq!(rx.try_recv(), Err(TryRecvError::Lagged(9)), "6 and an eighth of 24");
    assert_eq!(rx.try_recv(), Ok(10));
}

/// Dropping the last native subscriber keeps what is retained; dropping the last receiver of the drop-in releases it.
#[test]
fn the_last_handle_decides_whether_values_are_retained() {
    let value = Arc::new(());
    let (tx, rx) = broadcast::channel(8);
    tx.send(value.clone()).unwrap();
    drop(Subscriber::from(rx));
    assert_eq!(Arc::strong_count(&value), 2);
    let mut late = tx.as_publisher().subscribe_from(Start::Oldest);
    assert!(late.try_recv().is_ok());
    assert_eq!(Arc::strong_count(&value), 2);
    drop(Receiver::from(late));
    assert_eq!(Arc::strong_count(&value), 1);
}

/// `closed` waits for subscribers of both kinds.
#[test]
fn closed_waits_for_native_subscribers_too() {
    let (tx, rx) = broadcast::channel::<u8>(8);
    let native = tx.as_publisher().subscribe();
    drop(rx);
    assert!(poll_once(tx.closed()).is_pending());
    assert_eq!(tx.send(1).unwrap(), 1);
    drop(native);
    block_on(tx.closed());
    assert!(tx.send(2).is_err());
}

/// Voids of native publishers are not messages: a receiver passes over them.
#[test]
fn receivers_pass_over_voids() {
    let (tx, mut rx) = broadcast::channel(8);
    must_panic(|| tx.as_publisher().publish_with(|_| planned_panic()));
    tx.send(1).unwrap();
    assert_eq!(rx.try_recv(), Ok(1));
    assert!(rx.is_empty());
}
