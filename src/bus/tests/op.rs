//! The operations of a schedule. The fuzz targets in `fuzz/` generate them too.

use crate::bus::OnSlow;

/// An operation of a schedule.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Another process appends to a stream, and its notification is delivered, late or lost.
    Append {
        stream: u8,
        fate: NotificationFate,
    },
    /// This process appends to a stream, and delivers the event itself.
    AppendHere {
        stream: u8,
    },
    /// The oldest late notification is delivered.
    DeliverLate,
    /// A notification comes that no appender has sent.
    InvalidNotification {
        stream: u8,
        first: u64,
        more: u64,
    },
    /// The bus gives new subscriptions their start.
    Start,
    /// The bus reads up to `limit` records of up to `streams` streams each, or the read fails.
    Read {
        streams: usize,
        limit: usize,
        fails: bool,
    },
    Sweep,
    /// Retention removes a stream's events up to `through`.
    Trim {
        stream: u8,
        through: u64,
    },
    /// The store loses a stream's events after `keep`, if they were delivered.
    Rewind {
        stream: u8,
        keep: u64,
    },
    SubscribeOne {
        stream: u8,
        on_slow: OnSlow,
    },
    SubscribeFrom {
        stream: u8,
        after: u64,
    },
    SubscribeAll,
    /// A subscriber receives up to `items` items.
    Receive {
        subscription: usize,
        items: usize,
    },
    Unsubscribe {
        subscription: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum NotificationFate {
    Delivered,
    Late,
    Lost,
}

/// Removes the sweeps from a schedule. Notifications may be late in it, but none is lost.
pub(super) fn without_sweeps(ops: Vec<Op>) -> Vec<Op> {
    let replace = |op| match op {
        Op::Sweep => None,
        Op::Append {
            stream,
            fate: NotificationFate::Lost,
        } => Some(Op::Append {
            stream,
            fate: NotificationFate::Late,
        }),
        op => Some(op),
    };
    ops.into_iter().filter_map(replace).collect()
}
