//! What a subscription yields.

use core::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::channel_name::ChannelName;
use crate::ring::Lagged;

/// What a [`ListenSubscription`](super::ListenSubscription) yields, in the order in which the listener learned of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ListenItem {
    /// Somebody notified the channel.
    Notification(Notification),
    /// The listener had lost its connection and listens again. What was notified in between is lost, and nobody can say whether
    /// there was anything: look at what the notifications are about. From here on nothing is missed.
    Reconnected(Reconnected),
    /// This subscription was too slow, and that many items of its channel are lost to it. A `Reconnected` may be among them:
    /// treat it as one.
    Lagged(Lagged),
}

impl ListenItem {
    /// The notification, if this is one.
    ///
    /// ```
    /// use doorbell::listen::ListenItem;
    ///
    /// fn payload(item: &ListenItem) -> Option<&str> {
    ///     item.notification().map(|n| n.payload())
    /// }
    ///
    /// let lagged = doorbell::ring::Lagged { skipped: 1, first_missed: 1, resume_at: 2 };
    /// assert_eq!(payload(&ListenItem::Lagged(lagged)), None);
    /// ```
    pub fn notification(&self) -> Option<&Notification> {
        match self {
            Self::Notification(notification) => Some(notification),
            Self::Reconnected(_) | Self::Lagged(_) => None,
        }
    }
}

/// A notification; a clone costs a reference count.
#[derive(Clone)]
pub struct Notification(Arc<Parts>);

struct Parts {
    channel: ChannelName,
    payload: String,
    sender_pid: i32,
}

impl Notification {
    pub(super) fn new(channel: ChannelName, payload: String, sender_pid: i32) -> Self {
        Self(Arc::new(Parts {
            channel,
            payload,
            sender_pid,
        }))
    }

    /// The channel.
    pub fn channel(&self) -> &str {
        self.0.channel.as_str()
    }

    /// The payload, up to 7999 bytes; empty if the sender gave none. Anybody who can connect to the database can notify any
    /// channel with any payload: do not trust it.
    pub fn payload(&self) -> &str {
        &self.0.payload
    }

    /// The process id of the backend that sent it.
    pub fn sender_pid(&self) -> i32 {
        self.0.sender_pid
    }
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notification")
            .field("channel", &self.channel())
            .field("payload", &self.payload())
            .field("sender_pid", &self.sender_pid())
            .finish()
    }
}

/// The listener listens again after an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Reconnected {
    /// When the listener noticed the loss, by the system's clock. Notifications were missed from some time before it: a frozen
    /// server is noticed only by its silence (see the heartbeat).
    pub lost_at: SystemTime,
    /// When the server had acknowledged every channel again.
    pub restored_at: SystemTime,
    /// How many times the listener has reconnected, this time included.
    pub reconnects: u64,
}

#[cfg(test)]
impl Reconnected {
    pub(super) fn for_tests(reconnects: u64) -> Self {
        let now = SystemTime::now();
        Self {
            lost_at: now,
            restored_at: now,
            reconnects,
        }
    }
}
