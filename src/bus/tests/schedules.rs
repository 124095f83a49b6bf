//! Schedules that have violated the contract.

use super::{Op, run};
use crate::bus::OnSlow;

const READ: Op = Op::Read {
    streams: 1,
    limit: 1,
    fails: false,
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
