//! Doorbells that come in, honest ones and forged ones, while everything else happens to the bus as well.

#[path = "../../src/bus/tests/model_store.rs"]
mod model_store;
#[path = "../../src/bus/tests/harness.rs"]
mod harness;
#[path = "../../src/bus/tests/op.rs"]
mod op;
#[path = "../../src/bus/tests/checked_subscription.rs"]
mod checked_subscription;

use self::op::{NotificationFate, Op, without_sweeps};
use crate::bus::OnSlow;
use crate::input::Input;
use crate::planted::is_planted;

/// More would only be slow.
const MOST_STEPS: usize = 300;

/// Every subscription gets every event once and in order, and nothing that the store does not hold, whatever is forged.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(sweeps) = input.one_of(&[false, true]) else {
        return;
    };
    let steps: Vec<_> = std::iter::from_fn(|| step(&mut input)).take(MOST_STEPS).collect();
    let steps = if sweeps || is_planted() {
        steps
    } else {
        without_sweeps(steps)
    };
    if std::env::var_os("VERBOSE").is_some() {
        eprintln!("{steps:#?}");
    }
    harness::run(steps, sweeps);
}

fn step(input: &mut Input<'_>) -> Option<Op> {
    Some(match input.byte()? % 15 {
        0 => append(input, NotificationFate::Announced)?,
        1 => append(input, NotificationFate::Late)?,
        2 => append(input, NotificationFate::Lost)?,
        3 => Op::AppendHere { stream: stream(input)? },
        4 => Op::LateNotification,
        5 => {
            // Also of streams that have no events.
            let (stream, seqs) = (input.byte()? % 6, input.seqs()?);
            let (first, more) = (*seqs.start(), seqs.end() - seqs.start());
            Op::Forged { stream, first, more }
        }
        6 => Op::Start,
        7 => {
            let size = input.byte()?;
            Op::Read {
                streams: 1 + usize::from(size & 3),
                limit: 1 + usize::from(size >> 2 & 7),
                fails: size >> 5 == 7,
            }
        }
        8 => Op::Sweep,
        9 => Op::SubscribeOne {
            stream: stream(input)?,
            on_slow: input.one_of(&[OnSlow::Replay, OnSlow::Report])?,
        },
        10 => Op::SubscribeFrom {
            stream: stream(input)?,
            after: input.seq()? - 1,
        },
        11 => Op::SubscribeAll,
        12 => {
            let subscription = usize::from(input.byte()?);
            match input.byte()? {
                0 => Op::Unsubscribe { subscription },
                items => Op::Receive {
                    subscription,
                    items: usize::from(items & 15),
                },
            }
        }
        13 => Op::Trim {
            stream: stream(input)?,
            through: input.seq()?,
        },
        _ => Op::Rewind {
            stream: stream(input)?,
            keep: input.seq()? - 1,
        },
    })
}

fn append(input: &mut Input<'_>, fate: NotificationFate) -> Option<Op> {
    let stream = stream(input)?;
    Some(Op::Append { stream, fate })
}

/// One that has events.
fn stream(input: &mut Input<'_>) -> Option<u8> {
    Some(input.byte()? & 3)
}
