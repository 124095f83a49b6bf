//! The operations, and strategies for random sequences of them.

use proptest::prelude::*;
use std::ops::Range;

/// One operation. Its numbers select among the existing handles; without any, it does nothing.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Send(usize),
    Subscribe(usize),
    CloneSender(usize),
    DropSender(usize),
    Downgrade(usize),
    Upgrade(usize),
    CloneWeak(usize),
    DropWeak(usize),
    TryRecv(usize),
    /// A `recv` that is polled once and dropped.
    Recv(usize),
    /// A receive whose clone panics.
    RecvPanics(usize),
    Resubscribe(usize),
    DropReceiver(usize),
    /// Starts a `recv` and keeps it.
    Wait(usize),
    PollWait(usize),
    /// Drops the future of a waiting `recv` and keeps the receiver.
    CancelWait(usize),
    /// Drops a waiting `recv` together with its receiver.
    DropWait(usize),
    /// Starts a `closed` and keeps it.
    Watch(usize),
    PollWatch(usize),
    DropWatch(usize),
}

/// Sequences of operations, mostly sends and receives.
pub(crate) fn ops(length: Range<usize>) -> impl Strategy<Value = Vec<Op>> {
    let which = 0_usize..6;
    let op = (0_u32..100, which).prop_map(|(kind, which)| match kind {
        0..30 => Op::Send(which),
        30..50 => Op::TryRecv(which),
        50..55 => Op::Recv(which),
        55..57 => Op::RecvPanics(which),
        57..62 => Op::Subscribe(which),
        62..64 => Op::Resubscribe(which),
        64..69 => Op::DropReceiver(which),
        69..74 => Op::Wait(which),
        74..79 => Op::PollWait(which),
        79..81 => Op::CancelWait(which),
        81..83 => Op::DropWait(which),
        83..85 => Op::CloneSender(which),
        85..87 => Op::DropSender(which),
        87..89 => Op::Downgrade(which),
        89..91 => Op::Upgrade(which),
        91..92 => Op::CloneWeak(which),
        92..93 => Op::DropWeak(which),
        93..95 => Op::Watch(which),
        95..98 => Op::PollWatch(which),
        _ => Op::DropWatch(which),
    });
    prop::collection::vec(op, length)
}
