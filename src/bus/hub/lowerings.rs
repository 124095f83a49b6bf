//! The starts that late notifications have lowered, for subscriptions that were too slow to find the notices in their ring.

use std::collections::VecDeque;

/// The maximum number that is kept per stream.
const MAX_KEPT: usize = 256;

/// The numbers to which a stream was [lowered](super::StreamNoticeKind::Lowered), each with its time by the table's clock. Later ones are
/// higher: a lower one replaces those before it.
#[derive(Debug, Default)]
pub(super) struct Lowerings(VecDeque<(u64, u64)>);

impl Lowerings {
    pub(super) fn push(&mut self, tick: u64, to: u64) {
        while self.0.back().is_some_and(|&(_, earlier)| earlier >= to) {
            self.0.pop_back();
        }
        self.0.push_back((tick, to));
        if self.0.len() > MAX_KEPT {
            // The lower number counts for both: rather an event too many than one too few.
            let lowest = self.0.pop_front().map(|(_, to)| to);
            if let (Some((_, to)), Some(lowest)) = (self.0.front_mut(), lowest) {
                *to = lowest;
            }
        }
    }

    /// Returns the lowest number to which a subscription that has attached at `tick` was lowered.
    pub(super) fn since(&self, tick: u64) -> Option<u64> {
        let next = self.0.partition_point(|&(at, _)| at <= tick);
        self.0.get(next).map(|&(_, to)| to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_since_a_start_is_found() {
        let mut lowerings = Lowerings::default();
        for (tick, to) in [(10, 5), (20, 3), (30, 7)] {
            lowerings.push(tick, to);
        }
        assert_eq!(
            [9, 15, 20, 29, 30].map(|tick| lowerings.since(tick)),
            [Some(3), Some(3), Some(7), Some(7), None]
        );
    }

    #[test]
    fn too_many_are_merged_to_the_lower_number() {
        let mut lowerings = Lowerings::default();
        let kept = MAX_KEPT as u64;
        for tick in 1..=kept + 2 {
            lowerings.push(tick, 100 + tick);
        }
        assert_eq!(lowerings.0.len(), MAX_KEPT);
        assert_eq!(
            [0, 2, 3, kept + 1].map(|tick| lowerings.since(tick)),
            [Some(101), Some(101), Some(104), Some(102 + kept)]
        );
    }
}
