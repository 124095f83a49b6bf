//! Schedules of a bus: valid, late, lost and forged notifications, with retention, failovers and subscriptions in between.

use doorbell::bus::OnSlow;
use doorbell::fuzzing::schedule::{NotificationFate, Op, run, without_sweeps};

use crate::input::Input;
use crate::planted::is_planted;

/// Bounds the time of one execution.
const MAX_OPS: usize = 300;

/// Every subscription gets every event once and in order, and nothing that the store does not hold, whatever is forged.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(sweeps) = input.one_of(&[false, true]) else {
        return;
    };
    let ops: Vec<_> = std::iter::from_fn(|| op(&mut input)).take(MAX_OPS).collect();
    let ops = if sweeps || is_planted() {
        ops
    } else {
        without_sweeps(ops)
    };
    if std::env::var_os("VERBOSE").is_some() {
        eprintln!("{ops:#?}");
    }
    run(ops, sweeps);
}

fn op(input: &mut Input<'_>) -> Option<Op> {
    Some(match input.byte()? % 16 {
        0 => append(input, NotificationFate::Delivered)?,
        1 => append(input, NotificationFate::Late)?,
        2 => append(input, NotificationFate::Lost)?,
        3 => Op::AppendHere { stream: stream(input)? },
        4 => Op::DeliverLate,
        5 => {
            // Includes streams without events.
            let (stream, seqs) = (input.byte()? % 6, input.seqs()?);
            let (first, more) = (*seqs.start(), seqs.end() - seqs.start());
            Op::InvalidNotification { stream, first, more }
        }
        6 => Op::Start,
        7 => {
            let size = input.byte()?;
            Op::Read {
                streams: 1 + usize::from(size & 3),
                limit: 1 + usize::from(size >> 2 & 7),
                fails: size >> 5 == 7,
                lacks: if size >> 5 == 6 { 3 } else { 0 },
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
        14 => {
            let (stream, keep) = (stream(input)?, input.seq()? - 1);
            match input.byte()? & 15 {
                0 => Op::Rewind { stream, keep },
                1 => Op::Settle,
                more => Op::Replace {
                    stream,
                    keep,
                    more: u64::from(more - 2),
                },
            }
        }
        _ => {
            let size = input.byte()?;
            Op::StaleHistory {
                reads: u32::from(size & 3),
                lacks: u64::from(size >> 2),
            }
        }
    })
}

fn append(input: &mut Input<'_>, fate: NotificationFate) -> Option<Op> {
    let stream = stream(input)?;
    Some(Op::Append { stream, fate })
}

/// One of the four streams that get events.
fn stream(input: &mut Input<'_>) -> Option<u8> {
    Some(input.byte()? & 3)
}
