//! Uses that must not compile, each beside a twin that does and differs only in the point.
//!
//! The snippets are documentation tests. Only an unstable `rustdoc` compares the error codes, so `.ci/test` runs this file a second time,
//! with the unstable features unlocked.

/// A value is dropped by whichever thread displaces it.
///
/// ```compile_fail,E0277
/// use std::sync::MutexGuard;
///
/// let _ = doorbell::ring::channel::<MutexGuard<'static, u8>>(4);
/// ```
///
/// ```
/// use std::sync::Mutex;
///
/// let _ = doorbell::ring::channel::<Mutex<u8>>(4);
/// ```
mod values_are_send {}

/// Several subscribers read the same value at the same time, so sharing a value that is not `Sync` would be unsound. This is field report
/// R15; the others are in `tests/field_reports.rs`.
///
/// ```compile_fail,E0277
/// use std::cell::Cell;
///
/// let _ = doorbell::ring::channel::<Cell<u8>>(4);
/// ```
///
/// ```
/// use std::sync::atomic::AtomicU8;
///
/// let _ = doorbell::ring::channel::<AtomicU8>(4);
/// ```
mod r15_values_are_sync {}

/// A listed difference of the drop-in from tokio: its receivers clone a value while others read it.
///
/// ```compile_fail,E0277
/// use std::cell::Cell;
///
/// let _ = doorbell::broadcast::channel::<Cell<u8>>(4);
/// ```
///
/// ```
/// use std::sync::{Arc, atomic::AtomicU8};
///
/// let _ = doorbell::broadcast::channel::<Arc<AtomicU8>>(4);
/// ```
mod broadcast_values_are_sync {}

/// A value stays in the ring until it is overwritten, so it may outlive any borrow.
///
/// ```compile_fail,E0597
/// let text = String::from("short-lived");
/// let (publisher, _subscriber) = doorbell::ring::channel::<&str>(4);
/// publisher.publish(&text);
/// ```
///
/// ```
/// let text: &'static str = "as long as the program";
/// let (publisher, _subscriber) = doorbell::ring::channel::<&str>(4);
/// publisher.publish(&text);
/// ```
mod a_value_does_not_borrow_a_local {}

/// Receiving by value needs `Clone`; receiving by reference does not.
///
/// ```compile_fail,E0599
/// struct NotClone;
///
/// let (_publisher, mut subscriber) = doorbell::ring::channel::<NotClone>(4);
/// let _ = subscriber.try_recv();
/// ```
///
/// ```
/// struct NotClone;
///
/// let (_publisher, mut subscriber) = doorbell::ring::channel::<NotClone>(4);
/// let _ = subscriber.try_recv_ref();
/// let _ = subscriber.try_recv_batch(1);
/// ```
mod receiving_by_value_needs_clone {}

/// A reference must be dropped before the next receive.
///
/// ```compile_fail,E0499
/// let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
/// publisher.publish(1);
/// let held = subscriber.try_recv_ref().unwrap();
/// let _ = subscriber.try_recv();
/// println!("{}", *held);
/// ```
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
/// publisher.publish(1);
/// let held = subscriber.try_recv_ref().unwrap();
/// publisher.publish(2);
/// println!("{}", *held);
/// drop(held);
/// let _ = subscriber.try_recv();
/// ```
mod a_reference_ends_before_the_next_receive {}

/// A reference cannot outlive its subscriber, whose announcement protects it.
///
/// ```compile_fail,E0505
/// let (publisher, mut subscriber) = doorbell::ring::channel::<String>(4);
/// publisher.publish(String::new());
/// let text: &String = &subscriber.try_recv_ref().unwrap();
/// drop(subscriber);
/// println!("{text}");
/// ```
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel::<String>(4);
/// publisher.publish(String::new());
/// let text: &String = &subscriber.try_recv_ref().unwrap();
/// drop(publisher);
/// println!("{text}");
/// ```
mod a_reference_does_not_outlive_its_subscriber {}

/// A batch's items outlive the batch, but not the next receive, which releases them.
///
/// ```compile_fail,E0499
/// let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
/// publisher.publish(1);
/// let first = subscriber.try_recv_batch(1).unwrap().next().unwrap();
/// let _ = subscriber.try_recv();
/// println!("{first}");
/// ```
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
/// publisher.publish(1);
/// let first = subscriber.try_recv_batch(1).unwrap().next().unwrap();
/// publisher.publish(2);
/// println!("{first}");
/// let _ = subscriber.try_recv();
/// ```
mod a_batch_item_ends_at_the_next_receive {}

/// A batch's items cannot outlive their subscriber, whose announcement protects them.
///
/// ```compile_fail,E0505
/// let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
/// publisher.publish(1);
/// let items: Vec<&u64> = subscriber.try_recv_batch(1).unwrap().collect();
/// drop(subscriber);
/// println!("{items:?}");
/// ```
///
/// ```
/// let (publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
/// publisher.publish(1);
/// let items: Vec<&u64> = subscriber.try_recv_batch(1).unwrap().collect();
/// drop(publisher);
/// println!("{items:?}");
/// ```
mod a_batch_item_does_not_outlive_its_subscriber {}

/// A subscriber waits in one receive at a time.
///
/// ```compile_fail,E0499
/// let (_publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
/// let first = subscriber.recv();
/// let second = subscriber.recv();
/// drop((first, second));
/// ```
///
/// ```
/// let (_publisher, mut subscriber) = doorbell::ring::channel::<u64>(4);
/// let mut other = subscriber.clone();
/// let first = subscriber.recv();
/// let second = other.recv();
/// drop((first, second));
/// ```
mod a_subscriber_has_one_receive_at_a_time {}

/// Handles, futures and references to values can be sent to other threads.
///
/// ```
/// fn sends<T: Send>(_: &T) {}
/// fn shares<T: Sync>(_: &T) {}
///
/// let (publisher, mut subscriber) = doorbell::ring::channel::<String>(4);
/// publisher.publish(String::new());
/// sends(&publisher);
/// shares(&publisher);
/// sends(&publisher.clone());
/// sends(&publisher.downgrade());
/// sends(&subscriber);
/// sends(&subscriber.recv());
/// sends(&subscriber.recv_batch(1));
/// let held = subscriber.try_recv_ref().unwrap();
/// sends(&held);
/// shares(&held);
/// drop(held);
/// sends(&subscriber.into_stream());
/// ```
mod handles_go_to_other_threads {}
