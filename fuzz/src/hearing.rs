//! Doorbells that come in, honest ones and forged ones, while everything else happens to the bus as well.

#[path = "../../src/bus/tests/books.rs"]
mod books;
#[path = "../../src/bus/tests/rig.rs"]
mod rig;
#[path = "../../src/bus/tests/step.rs"]
mod step;
#[path = "../../src/bus/tests/watched.rs"]
mod watched;

use self::step::{Bell, Step, without_sweeps};
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
    rig::run(steps, sweeps);
}

fn step(input: &mut Input<'_>) -> Option<Step> {
    Some(match input.byte()? % 15 {
        0 => append(input, Bell::Heard)?,
        1 => append(input, Bell::Late)?,
        2 => append(input, Bell::Lost)?,
        3 => Step::AppendHere { stream: stream(input)? },
        4 => Step::LateBell,
        5 => {
            // Also of streams that have no events.
            let (stream, seqs) = (input.byte()? % 6, input.seqs()?);
            let (first, more) = (*seqs.start(), seqs.end() - seqs.start());
            Step::Forged { stream, first, more }
        }
        6 => Step::Start,
        7 => {
            let size = input.byte()?;
            Step::Read {
                streams: 1 + usize::from(size & 3),
                limit: 1 + usize::from(size >> 2 & 7),
                fails: size >> 5 == 7,
            }
        }
        8 => Step::Sweep,
        9 => Step::SubscribeOne {
            stream: stream(input)?,
            on_slow: input.one_of(&[OnSlow::Replay, OnSlow::Report])?,
        },
        10 => Step::SubscribeFrom {
            stream: stream(input)?,
            after: input.seq()? - 1,
        },
        11 => Step::SubscribeAll,
        12 => {
            let subscription = usize::from(input.byte()?);
            match input.byte()? {
                0 => Step::Unsubscribe { subscription },
                items => Step::Receive {
                    subscription,
                    items: usize::from(items & 15),
                },
            }
        }
        13 => Step::Trim {
            stream: stream(input)?,
            through: input.seq()?,
        },
        _ => Step::Rewind {
            stream: stream(input)?,
            keep: input.seq()? - 1,
        },
    })
}

fn append(input: &mut Input<'_>, bell: Bell) -> Option<Step> {
    let stream = stream(input)?;
    Some(Step::Append { stream, bell })
}

/// One that has events.
fn stream(input: &mut Input<'_>) -> Option<u8> {
    Some(input.byte()? & 3)
}
