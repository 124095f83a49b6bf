//! Random schedules of everything that can happen to a bus, against what the contract promises.

mod books;
mod bus;
mod history;
mod rewinds;
mod rig;
mod step;
mod watched;

use proptest::prelude::*;

use self::rig::run;
use self::step::{Bell, Step, without_sweeps};
use super::OnSlow;

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..4_u8;
    let bell = prop_oneof![Just(Bell::Heard), Just(Bell::Late), Just(Bell::Lost)];
    let on_slow = prop_oneof![3 => Just(OnSlow::Replay), 1 => Just(OnSlow::Report)];
    prop_oneof![
        8 => (stream.clone(), bell).prop_map(|(stream, bell)| Step::Append { stream, bell }),
        6 => stream.clone().prop_map(|stream| Step::AppendHere { stream }),
        3 => Just(Step::LateBell),
        1 => (0..6_u8, 1..60_u64, 0..5_u64).prop_map(|(stream, first, more)| Step::Forged { stream, first, more }),
        4 => Just(Step::Start),
        8 => (1..4_usize, 1..6_usize, prop::bool::weighted(0.2))
            .prop_map(|(streams, limit, fails)| Step::Read { streams, limit, fails }),
        2 => Just(Step::Sweep),
        1 => (stream.clone(), 1..60_u64).prop_map(|(stream, through)| Step::Trim { stream, through }),
        1 => (stream.clone(), 0..30_u64).prop_map(|(stream, keep)| Step::Rewind { stream, keep }),
        2 => (stream.clone(), on_slow).prop_map(|(stream, on_slow)| Step::SubscribeOne { stream, on_slow }),
        1 => (stream, 0..30_u64).prop_map(|(stream, after)| Step::SubscribeFrom { stream, after }),
        1 => Just(Step::SubscribeAll),
        10 => (any::<usize>(), 1..12_usize)
            .prop_map(|(subscription, items)| Step::Receive { subscription, items }),
        1 => any::<usize>().prop_map(|subscription| Step::Unsubscribe { subscription }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn every_subscription_has_every_event_once_and_in_order(steps in prop::collection::vec(step(), 0..160)) {
        run(steps, true);
    }

    #[test]
    fn no_sweep_is_needed_if_every_doorbell_is_heard(steps in prop::collection::vec(step(), 0..160)) {
        run(without_sweeps(steps), false);
    }
}
