//! Schedules that have violated the contract.

use super::{NotificationFate, Op, run};
use crate::bus::OnSlow;

const READ: Op = Op::Read {
    streams: 1,
    limit: 1,
    fails: false,
    lacks: 0,
};

/// The only subscription that a late notification could concern is dropped before the store has been asked which events are
/// recent. The others of the stream, which wait for their start, get every event all the same.
#[test]
fn a_late_notification_that_concerns_no_subscription_any_more_stops_no_delivery() {
    run(
        vec![
            Op::AppendHere { stream: 2 },
            Op::SubscribeAll,
            Op::Start,
            Op::SubscribeFrom { stream: 2, after: 1 },
            Op::InvalidNotification {
                stream: 2,
                first: 1,
                more: 0,
            },
            Op::Unsubscribe { subscription: 0 },
            READ,
            Op::Start,
            Op::AppendHere { stream: 2 },
        ],
        false,
    );
}

/// The history of a stream is replaced while its late notification waits for a check, and the stream is removed.
#[test]
fn a_rewind_ends_the_check_of_a_late_notification() {
    run(
        vec![
            Op::AppendHere { stream: 0 },
            Op::SubscribeOne {
                stream: 0,
                on_slow: OnSlow::Replay,
            },
            Op::Start,
            Op::InvalidNotification {
                stream: 0,
                first: 1,
                more: 0,
            },
            Op::Rewind { stream: 0, keep: 0 },
            Op::Unsubscribe { subscription: 0 },
            Op::Sweep,
            Op::SubscribeAll,
            Op::Start,
            READ,
            Op::AppendHere { stream: 0 },
        ],
        true,
    );
}

/// A server that lacks events answers several reads of history in a row, and nothing is appended afterwards.
#[test]
fn history_reads_that_find_nothing_lose_no_event() {
    let slow = Op::SubscribeOne {
        stream: 0,
        on_slow: OnSlow::Replay,
    };
    let resumes = Op::SubscribeFrom { stream: 0, after: 0 };
    let appends = || std::iter::repeat_n(Op::AppendHere { stream: 0 }, 20);
    for (reads, lacks) in [(1, 5), (2, 1), (2, 20), (20, 20)] {
        for slow in [Op::SubscribeAll, slow.clone(), resumes.clone()] {
            let mut ops = vec![slow, Op::Start];
            ops.extend(appends());
            ops.push(Op::StaleHistory { reads, lacks });
            run(ops, false);
        }
        let mut ops: Vec<_> = appends().collect();
        ops.extend([resumes.clone(), Op::Start, Op::StaleHistory { reads, lacks }]);
        run(ops, false);
    }
}

/// A server that lacks an event answers the read of it, and no sweep for subscriptions to all lists the event again.
#[test]
fn a_read_that_lacks_the_event_that_a_sweep_has_named_loses_nothing() {
    let stale_read = Op::Read {
        streams: 1,
        limit: 1,
        fails: false,
        lacks: 1,
    };
    let append = Op::Append {
        stream: 0,
        fate: NotificationFate::Lost,
    };
    run(vec![Op::SubscribeAll, Op::Start, append, Op::Sweep, stale_read], true);
}

/// The baseline of the first subscription to all shows an event whose notification was lost, of a stream that is known but not delivered up
/// to there. No later sweep lists the event.
#[test]
fn events_that_only_the_baseline_shows_are_delivered() {
    run(
        vec![
            Op::SubscribeFrom { stream: 1, after: 0 },
            Op::Start,
            Op::Append {
                stream: 1,
                fate: NotificationFate::Delivered,
            },
            Op::Unsubscribe { subscription: 0 },
            Op::SubscribeAll,
            Op::Append {
                stream: 1,
                fate: NotificationFate::Lost,
            },
            Op::Start,
            READ,
        ],
        true,
    );
}
