//! The items of a subscription.

use core::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::channel_name::ChannelName;
use crate::ring::Lagged;

/// An item of a [`ListenSubscription`](super::ListenSubscription). Items are in the order in which the listener received them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ListenItem {
    /// A notification on the channel.
    Notification(Notification),
    /// The listener lost its connection and listens again. Notifications sent in between, if any, are lost: query the database
    /// for what they announce. From here on, nothing is missed.
    Reconnected(Reconnected),
    /// The subscription was too slow, and lost this number of items. They may include a `Reconnected`, so handle it like one.
    Lagged(Lagged),
}

impl ListenItem {
    /// Returns the notification, if this is one.
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

/// A notification. Cloning it increments a reference count.
#[derive(Clone)]
pub struct Notification(Arc<NotificationFields>);

struct NotificationFields {
    channel: ChannelName,
    payload: String,
    sender_pid: i32,
}

impl Notification {
    pub(super) fn new(channel: ChannelName, payload: String, sender_pid: i32) -> Self {
        Self(Arc::new(NotificationFields {
            channel,
            payload,
            sender_pid,
        }))
    }

    /// Returns the channel on which it was sent.
    pub fn channel(&self) -> &str {
        self.0.channel.as_str()
    }

    /// Returns the payload, of at most [`MAX_PAYLOAD_BYTES`](super::MAX_PAYLOAD_BYTES); empty if the sender gave none.
    ///
    /// Any client of the database can send any payload on any channel, so treat it as untrusted input.
    pub fn payload(&self) -> &str {
        &self.0.payload
    }

    /// Returns the id of the server process that sent it.
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

/// Marks the end of an outage: the listener listens on all channels again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Reconnected {
    /// When the listener detected the loss, by the system clock. Earlier notifications may also be missing, since a frozen server
    /// is detected only by a [heartbeat](super::ListenBuilder::heartbeat).
    pub disconnected_at: SystemTime,
    /// When the server had acknowledged every channel again, by the system clock.
    pub reconnected_at: SystemTime,
    /// Number of times the listener has reconnected, including this one.
    pub reconnects: u64,
}

#[cfg(test)]
impl Reconnected {
    pub(super) fn for_tests(reconnects: u64) -> Self {
        let now = SystemTime::now();
        Self {
            disconnected_at: now,
            reconnected_at: now,
            reconnects,
        }
    }
}
