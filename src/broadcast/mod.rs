//! A drop-in for `tokio::sync::broadcast` over the [ring]: change one `use` line.
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
//! assert_eq!(tx.send("ding").unwrap(), 2);
//!
//! assert_eq!(reader.await.unwrap(), Ok("ding"));
//! assert_eq!(second.recv().await, Ok("ding"));
//! # });
//! ```
//!
//! Names, signatures and observable behaviour are those of tokio 1.54, corner by corner: a send without receivers gives the value
//! back, the capacity is rounded up to a power of two, a receiver that fell behind gets one [`Lagged(n)`](error::RecvError::Lagged)
//! with the exact number and goes on with the oldest message retained, and so on. No runtime is needed; with the feature `tokio`,
//! receives take part in tokio's cooperative budget.
//!
//! # Differences
//!
//! - **`T: Send + Sync`** where the channel is made: receivers clone a value while others read it. (In tokio they take turns.)
//! - **A value lives longer**: until its storage is used again, which is at most twice the capacity later, or until the last
//!   receiver goes. Not until the last receiver has read it: nobody keeps count, and that is where the time is saved.
//! - **Panics stay where they arise**: a waker that panics does not make `send` panic, and leaves no waiter without its wake-up.
//! - Under contention, a send may leave its wake-ups to another call on the channel that is under way, instead of blocking for it.
//!
//! The repository's `docs/migrating-from-tokio.md` gives each with its reason and its test, and says what the native interface has
//! to offer beyond. Handles of either kind convert into one another (`From`), so code can
//! migrate handle by handle.

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

/// Makes a channel that retains `capacity` messages, rounded up to a power of two.
///
/// ```
/// use doorbell::broadcast;
///
/// let (tx, mut rx) = broadcast::channel(16);
/// tx.send("ding").unwrap();
/// assert_eq!(rx.try_recv(), Ok("ding"));
/// ```
///
/// # Panics
///
/// When `capacity` is zero, more than `usize::MAX / 2`, or more than memory can hold.
#[must_use]
#[track_caller]
pub fn channel<T: Clone + Send + Sync>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    channel_with(capacity, Wake::All)
}

/// As [`channel`], with a choice of who wakes waiting receivers.
///
/// [`Wake::All`] is tokio's way: a send wakes every waiting receiver before it returns. With [`Wake::Cascade`] it wakes a few, and
/// these wake the others as they run: a send costs the same, however many wait.
///
/// ```
/// use doorbell::broadcast;
/// use doorbell::ring::Wake;
///
/// let (tx, mut rx) = broadcast::channel_with(16, Wake::Cascade);
/// tx.send("ding").unwrap();
/// assert_eq!(rx.try_recv(), Ok("ding"));
/// ```
///
/// # Panics
///
/// As [`channel`].
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
