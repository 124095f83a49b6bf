//! Runs random sequences of operations on the drop-in and on `tokio::sync::broadcast`, and compares everything that can be observed
//! after each operation.
//!
//! docs/migrating-from-tokio.md lists the permitted differences. Only one applies here: how long a value lives. Its bounds are checked.

#[path = "broadcast_differential/ops.rs"]
mod ops;
#[macro_use]
#[path = "broadcast_differential/side.rs"]
mod side;

use ops::{Op, ops};
use proptest::prelude::*;

side!(theirs, tokio::sync::broadcast);
side!(ours, doorbell::broadcast);

/// How many values the drop-in may keep alive: twice its capacity, plus twice an eighth of the capacity for each receiver that
/// stopped in the middle of its announced interval.
fn most_alive(capacity: usize, receivers: usize) -> usize {
    let capacity = capacity.next_power_of_two();
    2 * capacity + 2 * receivers * capacity.div_ceil(8)
}

fn run(capacity: usize, with_receiver: bool, ops: &[Op]) {
    let mut theirs = theirs::Side::new(capacity, with_receiver);
    let mut ours = ours::Side::new(capacity, with_receiver);
    let mut most_receivers = 0;
    for (step, op) in ops.iter().enumerate() {
        let seen = ours.apply(op);
        assert_eq!(seen, theirs.apply(op), "step {step}: {op:?}");
        assert_eq!(ours.state(), theirs.state(), "after step {step}: {op:?}");
        assert!(
            ours.alive() >= theirs.alive(),
            "after step {step}: a value was dropped early"
        );
        let receivers = ours.receivers();
        assert_eq!(receivers, theirs.receivers(), "after step {step}: {op:?}");
        // A later send frees what a receiver had announced, even if the receiver is gone by then.
        most_receivers = most_receivers.max(receivers);
        let most = if receivers == 0 {
            0
        } else {
            most_alive(capacity, most_receivers)
        };
        assert!(ours.alive() <= most, "after step {step}: more than {most} values");
    }
    ours.end();
    theirs.end();
    assert_eq!(
        (ours.alive(), theirs.alive()),
        (0, 0),
        "values are left after every handle was dropped"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equals_tokio(capacity in 1_usize..10, with_receiver: bool, ops in ops(1..120)) {
        run(capacity, with_receiver, &ops);
    }
}

/// The same with long runs of sends, so that lag of many laps is common.
#[test]
fn equals_tokio_when_lapped_many_times() {
    for capacity in [1, 2, 3, 8] {
        for behind in 0..40 {
            let mut ops = vec![Op::Subscribe(0), Op::Send(0)];
            ops.extend(std::iter::repeat_n(Op::Send(0), behind));
            ops.extend([Op::TryRecv(0), Op::Recv(0), Op::TryRecv(0), Op::TryRecv(1), Op::Send(0)]);
            ops.extend(std::iter::repeat_n(Op::TryRecv(0), 20));
            ops.extend([
                Op::DropSender(0),
                Op::TryRecv(0),
                Op::TryRecv(1),
                Op::Resubscribe(0),
                Op::Recv(2),
            ]);
            run(capacity, true, &ops);
        }
    }
}
