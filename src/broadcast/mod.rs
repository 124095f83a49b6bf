//! A drop-in replacement for `tokio::sync::broadcast`, built on the [ring]: change one `use` line.
//!
//! ```
//! # // before: use tokio::sync::broadcast;
//! use doorbell::broadcast;
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let (tx, mut first) = broadcast::channel(16);
//! let mut second = tx.subscribe();
//!
//! let reader = tokio::spawn(async move { first.recv().await });
//! assert_eq!(tx.send("hello").unwrap(), 2);
//!
//! assert_eq!(reader.await.unwrap(), Ok("hello"));
//! assert_eq!(second.recv().await, Ok("hello"));
//! # });
//! ```
//!
//! Names, signatures and observable behaviour are those of tokio 1.54, including corner cases: a send without receivers returns
//! the value, the capacity is rounded up to a power of two, a receiver that fell behind gets one
//! [`Lagged(n)`](error::RecvError::Lagged) with the exact number and continues with the oldest retained message, and so on. No
//! runtime is needed; with the feature `tokio`, receives take part in tokio's [cooperative
//! scheduling](https://docs.rs/tokio/latest/tokio/task/coop/index.html).
//!
//! # Differences
//!
//! - **`T: Send + Sync`** is required where the channel is created: several receivers clone a value at the same time. (In tokio
//!   they take turns.)
//! - **A value lives longer**: until its storage is reused, at most twice the capacity later, or until the last receiver is
//!   dropped, rather than until the last receiver has read it. Not counting the reads saves time.
//! - **A panic in a waker stays there**: it does not make `send` panic, and other waiters are still woken.
//! - Under contention, a send may leave its wake-ups to another call on the channel that is in progress, instead of blocking.
//!
//! `docs/migrating-from-tokio.md` in the repository gives the reason and the test for each, and lists what the ring's own
//! interface adds. Handles of both kinds convert into each other (`From`), so code can migrate one handle at a time.

mod closed;
mod convert;
pub mod error;
mod receiver;
mod recv;
mod sender;
mod weak;
pub mod wrappers;

pub use closed::Closed;
pub use receiver::Receiver;
pub use recv::Recv;
pub use sender::Sender;
pub use weak::WeakSender;

use crate::ring::{self, Builder, OnLag, Wake};

/// Creates a channel that retains `capacity` messages, rounded up to a power of two.
///
/// ```
/// use doorbell::broadcast;
///
/// let (tx, mut rx) = broadcast::channel(16);
/// tx.send("hello").unwrap();
/// assert_eq!(rx.try_recv(), Ok("hello"));
/// ```
///
/// # Panics
///
/// Panics if `capacity` is zero, more than `usize::MAX / 2`, or more than memory can hold.
#[must_use]
#[track_caller]
pub fn channel<T: Clone + Send + Sync>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    channel_with(capacity, Wake::All)
}

/// Creates a channel like [`channel`], with a choice of how waiting receivers are woken.
///
/// [`Wake::All`] is what tokio does: a send wakes every waiting receiver before it returns. With [`Wake::Cascade`], it wakes a
/// few, and these wake the others as they run, so the cost of a send does not depend on the number of waiters.
///
/// ```
/// use doorbell::broadcast;
/// use doorbell::ring::Wake;
///
/// let (tx, mut rx) = broadcast::channel_with(16, Wake::Cascade);
/// tx.send("hello").unwrap();
/// assert_eq!(rx.try_recv(), Ok("hello"));
/// ```
///
/// # Panics
///
/// Panics under the same conditions as [`channel`].
#[must_use]
#[track_caller]
pub fn channel_with<T: Clone + Send + Sync>(capacity: usize, wake: Wake) -> (Sender<T>, Receiver<T>) {
    let (publisher, subscriber) = open(capacity, wake);
    (Sender::over(publisher), Receiver::over(subscriber))
}

#[track_caller]
fn open<T: Send + Sync>(capacity: usize, wake: Wake) -> (ring::Publisher<T>, ring::Subscriber<T>) {
    assert!(capacity != 0, "a channel needs a capacity of at least 1");
    assert!(
        capacity <= usize::MAX / 2,
        "a channel cannot have a capacity of {capacity}: the limit is usize::MAX / 2"
    );
    let builder = Builder::new(capacity.next_power_of_two())
        .on_lag(OnLag::Oldest)
        .wake(wake);
    ring::open(&builder).unwrap_or_else(|error| panic!("{error}"))
}
