//! The operations of a schedule. The fuzz targets decode their input into these.

use crate::bus::OnSlow;

/// One operation. Streams and subscriptions are given by their index; an index of a subscription wraps around.
#[derive(Clone, Debug)]
pub enum Op {
    /// Another process appends to a stream and notifies.
    Append {
        /// The stream.
        stream: u8,
        /// What happens to the notification.
        fate: NotificationFate,
    },
    /// This process appends and delivers without reading the event back.
    AppendHere {
        /// The stream.
        stream: u8,
    },
    /// The oldest late notification arrives.
    DeliverLate,
    /// A notification arrives for events that may not exist.
    InvalidNotification {
        /// The stream, which may have no events.
        stream: u8,
        /// The first number.
        first: u64,
        /// How many numbers follow the first.
        more: u64,
    },
    /// The worker fixes the start positions of new subscriptions.
    Start,
    /// The worker reads events that are wanted.
    Read {
        /// The maximum number of streams.
        streams: usize,
        /// The maximum number of events per stream.
        limit: usize,
        /// Whether the read fails.
        fails: bool,
        /// How many of a stream's last events the server lacks that answers.
        lacks: u64,
    },
    /// A server that lacks events answers the next reads of history.
    StaleHistory {
        /// The number of reads.
        reads: u32,
        /// How many of a stream's last events it lacks.
        lacks: u64,
    },
    /// The worker looks for events whose notification was lost.
    Sweep,
    /// Retention removes events from a stream.
    Trim {
        /// The stream.
        stream: u8,
        /// The last number to remove.
        through: u64,
    },
    /// The store loses delivered events. Without effect if no event after `keep` was delivered.
    Rewind {
        /// The stream.
        stream: u8,
        /// The last number to keep.
        keep: u64,
    },
    /// The store loses events, delivered or not, and has others in their places, which nobody announces.
    Replace {
        /// The stream.
        stream: u8,
        /// The last number to keep.
        keep: u64,
        /// How many events follow it.
        more: u64,
    },
    /// The worker compares the streams in doubt with the store.
    Settle,
    /// A subscription to one stream's new events.
    SubscribeOne {
        /// The stream.
        stream: u8,
        /// What happens if the subscription lags.
        on_slow: OnSlow,
    },
    /// A subscription to one stream from a position on.
    SubscribeFrom {
        /// The stream.
        stream: u8,
        /// The number that precedes the first event.
        after: u64,
    },
    /// A subscription to all streams' new events.
    SubscribeAll,
    /// A subscriber receives.
    Receive {
        /// The subscription.
        subscription: usize,
        /// The maximum number of items.
        items: usize,
    },
    /// A subscription is dropped.
    Unsubscribe {
        /// The subscription.
        subscription: usize,
    },
}

/// The fate of an append's notification.
#[derive(Clone, Copy, Debug)]
pub enum NotificationFate {
    /// It arrives at once.
    Delivered,
    /// It arrives with a later [`Op::DeliverLate`].
    Late,
    /// It never arrives.
    Lost,
}

/// Returns the same schedule without sweeps: notifications that would be lost are late instead, no server lacks events, and no history is
/// replaced unnoticed.
pub fn without_sweeps(ops: Vec<Op>) -> Vec<Op> {
    let op = |op| match op {
        Op::Sweep | Op::StaleHistory { .. } | Op::Replace { .. } => None,
        Op::Append {
            stream,
            fate: NotificationFate::Lost,
        } => Some(Op::Append {
            stream,
            fate: NotificationFate::Late,
        }),
        Op::Read {
            streams, limit, fails, ..
        } => Some(Op::Read {
            streams,
            limit,
            fails,
            lacks: 0,
        }),
        op => Some(op),
    };
    ops.into_iter().filter_map(op).collect()
}
