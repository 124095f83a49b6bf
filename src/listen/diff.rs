//! What has to be said to the server so that it listens on what is wanted: a function of what is wanted and what it has.

use std::collections::HashSet;
use std::time::Instant;

use super::channel::ChannelName;

/// What is wanted of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Somebody holds it.
    Held,
    /// Nobody does, but somebody may come back until then.
    LingersUntil(Instant),
    /// Nobody does.
    Gone,
}

/// The statements that are due, and the channels to look at again later.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Diff {
    pub(super) listen: Vec<ChannelName>,
    pub(super) unlisten: Vec<ChannelName>,
    /// Nobody holds these and the server does not have them: nothing to say, only to forget.
    pub(super) forget: Vec<ChannelName>,
    pub(super) later: Vec<(Instant, ChannelName)>,
}

/// Compares what is wanted with what the server has. Each name occurs once in the result, if at all.
pub(super) fn diff(
    wanted: impl IntoIterator<Item = (ChannelName, Wanted)>,
    listening: &HashSet<ChannelName>,
    now: Instant,
) -> Diff {
    let mut diff = Diff::default();
    for (name, wanted) in wanted {
        match (wanted, listening.contains(&name)) {
            (Wanted::Held, false) => diff.listen.push(name),
            (Wanted::Held, true) => {}
            (Wanted::LingersUntil(until), true) if now < until => diff.later.push((until, name)),
            (Wanted::LingersUntil(_) | Wanted::Gone, true) => diff.unlisten.push(name),
            (Wanted::LingersUntil(_), false) => diff.forget.push(name),
            (Wanted::Gone, false) => {}
        }
    }
    diff
}
