//! When each event of a paced run is due.

use std::time::{Duration, Instant};

/// A schedule of a fixed number of events per second.
///
/// Every due time is computed from the start, so that neither rounding nor a late event shifts later ones: a publisher that was
/// held up catches up. Only an input that is too slow restarts the schedule.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    events_per_second: u64,
    start: Option<Instant>,
    events: u64,
    /// How often an event arrived after it was due.
    pub(crate) late_arrivals: u64,
}

impl Schedule {
    pub(crate) fn new(events_per_second: u64) -> Self {
        Self {
            events_per_second,
            ..Self::default()
        }
    }

    /// When the next event is due: not before it arrived.
    pub(crate) fn next(&mut self, arrived: Instant) -> Instant {
        let due = self.start.map(|start| start + self.elapsed());
        let due = match due {
            Some(due) if due >= arrived => due,
            _ => {
                self.late_arrivals += u64::from(due.is_some());
                self.start = Some(arrived);
                self.events = 0;
                arrived
            }
        };
        self.events += 1;
        due
    }

    fn elapsed(&self) -> Duration {
        let nanoseconds = u128::from(self.events) * 1_000_000_000 / u128::from(self.events_per_second);
        Duration::from_nanos(nanoseconds as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_do_not_drift() {
        let arrived = Instant::now();
        let mut schedule = Schedule::new(3);
        let due: Vec<_> = (0..=3_000_000).map(|_| schedule.next(arrived) - arrived).collect();
        assert_eq!(due[1], Duration::from_nanos(333_333_333));
        assert_eq!(due[3], Duration::from_secs(1));
        assert_eq!(due[3_000_000], Duration::from_secs(1_000_000));
        assert_eq!(schedule.late_arrivals, 0);
    }

    #[test]
    fn a_late_arrival_restarts_the_schedule() {
        let second = Duration::from_secs(1);
        let arrived = Instant::now();
        let mut schedule = Schedule::new(2);
        assert_eq!(schedule.next(arrived), arrived);
        assert_eq!(schedule.next(arrived), arrived + second / 2);
        assert_eq!(schedule.next(arrived + second * 9), arrived + second * 9);
        assert_eq!(schedule.next(arrived + second * 9), arrived + second * 19 / 2);
        assert_eq!(schedule.late_arrivals, 1);
    }
}
