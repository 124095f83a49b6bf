//! Appends that are refused after a switchover.

use std::fmt;
use std::time::Duration;

/// The longest time after a switchover during which appends may be refused. The time starts when a probe first finds the new primary
/// writable.
pub(super) const LONGEST_REFUSAL: Duration = Duration::from_secs(1);

/// Matches refused appends with switchovers. All times are nanoseconds since 1970.
#[derive(Default)]
pub(super) struct Refusals {
    switchovers: Vec<Switchover>,
    /// All refused appends, whatever the cause.
    count: u64,
}

struct Switchover {
    writable: u64,
    /// The next fault, which may refuse appends itself.
    next_fault: Option<u64>,
    last_refusal: Option<u64>,
}

impl Switchover {
    /// From when the new primary was writable until the last refusal.
    fn refused_for(&self) -> Duration {
        let last = self.last_refusal.unwrap_or(self.writable);
        Duration::from_nanos(last - self.writable)
    }
}

impl Refusals {
    /// A probe found the new primary writable.
    pub(super) fn writable_at(&mut self, writable: u64) {
        self.switchovers.push(Switchover {
            writable,
            next_fault: None,
            last_refusal: None,
        });
    }

    /// A fault begins. Refusals from now on say nothing about the latest switchover.
    pub(super) fn fault_at(&mut self, time: u64) {
        if let Some(switchover) = self.switchovers.last_mut() {
            switchover.next_fault.get_or_insert(time);
        }
    }

    /// An append was refused. Times may come late, and in any order.
    pub(super) fn refused_at(&mut self, time: u64) {
        self.count += 1;
        let mut newest_first = self.switchovers.iter_mut().rev();
        let Some(switchover) = newest_first.find(|switchover| switchover.writable <= time) else {
            return;
        };
        if switchover.next_fault.is_none_or(|fault| time < fault) {
            switchover.last_refusal = switchover.last_refusal.max(Some(time));
        }
    }

    /// Fails if an append was refused too late.
    pub(super) fn check(&self) -> Result<(), String> {
        for (n, switchover) in self.switchovers.iter().enumerate() {
            let refused = switchover.refused_for();
            if refused > LONGEST_REFUSAL {
                return Err(format!(
                    "switchover {}: an append was refused {refused:.1?} after the new primary was first found writable",
                    n + 1
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut times: Vec<_> = self.switchovers.iter().map(Switchover::refused_for).collect();
        times.sort();
        write!(f, "{} appends refused; ", self.count)?;
        let (Some(longest), Some(median)) = (times.last(), times.get(times.len() / 2)) else {
            return f.write_str("no switchover");
        };
        write!(
            f,
            "the last one after each of {} switchovers: {longest:.1?} at most after the new primary was first found writable \
             (median {median:.1?})",
            times.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Refusals;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn refusals_count_from_the_probe_to_the_next_fault() {
        let mut refusals = Refusals::default();
        refusals.refused_at(5 * SECOND);
        refusals.writable_at(10 * SECOND);
        refusals.refused_at(10 * SECOND + SECOND / 2);
        refusals.fault_at(14 * SECOND);
        refusals.fault_at(16 * SECOND);
        refusals.refused_at(15 * SECOND);
        refusals.refused_at(9 * SECOND);
        assert_eq!(refusals.switchovers[0].refused_for(), Duration::from_millis(500));
        refusals.check().unwrap();
        refusals.writable_at(20 * SECOND);
        // It is reported late, after the next switchover.
        refusals.refused_at(13 * SECOND);
        assert_eq!(refusals.switchovers[0].refused_for(), Duration::from_secs(3));
        assert_eq!(refusals.switchovers[1].refused_for(), Duration::ZERO);
        assert!(refusals.check().unwrap_err().contains("switchover 1"));
    }
}
