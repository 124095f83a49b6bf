//! What can happen to a bus. Also the fuzzer's words, see `fuzz/`.

use crate::bus::OnSlow;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Somebody appends to a stream; with a doorbell that is heard, heard later, or lost.
    Append {
        stream: u8,
        fate: NotificationFate,
    },
    /// This process appends, and delivers by itself.
    AppendHere {
        stream: u8,
    },
    /// A doorbell that was late is heard.
    LateNotification,
    /// A doorbell by anybody, for anything.
    Forged {
        stream: u8,
        first: u64,
        more: u64,
    },
    /// The worker fixes the starts of new subscriptions.
    Start,
    /// The worker reads what is wanted, up to so many streams, and some at a time; or fails to.
    Read {
        streams: usize,
        limit: usize,
        fails: bool,
    },
    Sweep,
    /// Retention takes a stream's events up to this number.
    Trim {
        stream: u8,
        through: u64,
    },
    /// The store loses what comes after this number, if that was delivered.
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
    /// A subscriber takes so many items.
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
    Announced,
    Late,
    Lost,
}

/// The same without sweeps: doorbells are late, but none gets lost.
pub(super) fn without_sweeps(steps: Vec<Op>) -> Vec<Op> {
    let step = |step| match step {
        Op::Sweep => None,
        Op::Append {
            stream,
            fate: NotificationFate::Lost,
        } => Some(Op::Append {
            stream,
            fate: NotificationFate::Late,
        }),
        step => Some(step),
    };
    steps.into_iter().filter_map(step).collect()
}
