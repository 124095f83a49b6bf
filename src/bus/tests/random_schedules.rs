//! Random schedules of operations.
//!
//! More cases or other seeds: `PROPTEST_CASES=20000 PROPTEST_RNG_SEED=7 cargo test --lib random_schedules`.

use proptest::prelude::*;

use super::{NotificationFate, Op, run, without_sweeps};
use crate::bus::OnSlow;

fn op() -> impl Strategy<Value = Op> {
    let stream = 0..4_u8;
    let fate = prop_oneof![
        Just(NotificationFate::Delivered),
        Just(NotificationFate::Late),
        Just(NotificationFate::Lost)
    ];
    let on_slow = prop_oneof![3 => Just(OnSlow::Replay), 1 => Just(OnSlow::Report)];
    prop_oneof![
        8 => (stream.clone(), fate).prop_map(|(stream, fate)| Op::Append { stream, fate }),
        6 => stream.clone().prop_map(|stream| Op::AppendHere { stream }),
        3 => Just(Op::DeliverLate),
        1 => (0..6_u8, 1..60_u64, 0..5_u64).prop_map(|(stream, first, more)| Op::InvalidNotification { stream, first, more }),
        4 => Just(Op::Start),
        8 => (1..4_usize, 1..6_usize, prop::bool::weighted(0.2), prop_oneof![4 => Just(0), 1 => 1..8_u64])
            .prop_map(|(streams, limit, fails, lacks)| Op::Read { streams, limit, fails, lacks }),
        1 => (1..5_u32, 1..20_u64).prop_map(|(reads, lacks)| Op::StaleHistory { reads, lacks }),
        2 => Just(Op::Sweep),
        1 => (stream.clone(), 1..60_u64).prop_map(|(stream, through)| Op::Trim { stream, through }),
        1 => (stream.clone(), 0..30_u64).prop_map(|(stream, keep)| Op::Rewind { stream, keep }),
        1 => (stream.clone(), 0..30_u64, 0..8_u64).prop_map(|(stream, keep, more)| Op::Replace { stream, keep, more }),
        2 => Just(Op::Settle),
        2 => (stream.clone(), on_slow).prop_map(|(stream, on_slow)| Op::SubscribeOne { stream, on_slow }),
        1 => (stream, 0..30_u64).prop_map(|(stream, after)| Op::SubscribeFrom { stream, after }),
        1 => Just(Op::SubscribeAll),
        10 => (any::<usize>(), 1..12_usize)
            .prop_map(|(subscription, items)| Op::Receive { subscription, items }),
        1 => any::<usize>().prop_map(|subscription| Op::Unsubscribe { subscription }),
    ]
}

/// The environment may ask for more cases.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(500),
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_subscription_gets_every_event_once_and_in_order(ops in prop::collection::vec(op(), 0..160)) {
        run(ops, true);
    }

    #[test]
    fn no_sweep_is_needed_if_no_notification_is_lost(ops in prop::collection::vec(op(), 0..160)) {
        run(without_sweeps(ops), false);
    }
}
