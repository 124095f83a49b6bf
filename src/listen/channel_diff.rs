//! What has to be said to the server so that it listens on what is wanted: a function of what is wanted and what it has.

use std::collections::HashSet;
use std::time::Instant;

use super::channel_name::ChannelName;

/// What is wanted of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Somebody holds it.
    Held,
    /// Nobody does, but somebody may come back until then.
    DelayedUntil(Instant),
    /// Nobody does.
    Gone,
}

/// The statements that are due, and the channels to look at again later.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ChannelDiff {
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
) -> ChannelDiff {
    let mut diff = ChannelDiff::default();
    for (name, wanted) in wanted {
        match (wanted, listening.contains(&name)) {
            (Wanted::Held, false) => diff.listen.push(name),
            (Wanted::Held, true) => {}
            (Wanted::DelayedUntil(until), true) if now < until => diff.later.push((until, name)),
            (Wanted::DelayedUntil(_) | Wanted::Gone, true) => diff.unlisten.push(name),
            (Wanted::DelayedUntil(_), false) => diff.forget.push(name),
            (Wanted::Gone, false) => {}
        }
    }
    diff
}
