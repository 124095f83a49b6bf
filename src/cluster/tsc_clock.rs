//! The wall clock at half the price: the processor's tick counter, from one look at the system's clock to the next.
//!
//! Each thread looks at the system's clock (its *anchor*) once a millisecond at most, and adds the ticks since then. The result
//! differs from the system's clock by about a microsecond, and follows it within a millisecond when it is set.
//!
//! What could go wrong costs no more than a look at the system's clock: where there is no counter of constant speed, while the
//! speed is not known yet, when the counter has gone back, and when the thread was interrupted between the two looks.

use core::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

/// How long an anchor holds.
const HOLDS: Duration = Duration::from_millis(1);

/// The speed is measured over at least this long.
const MEASURE: Duration = Duration::from_millis(10);

/// More ticks than this between two looks that belong together: the thread was interrupted.
const INTERRUPTED: u64 = 5_000;

/// The system's clock can be less than this behind what was given out last, without having been set back.
const CORRECTION: Duration = Duration::from_micros(50);

/// Speeds are nanoseconds per tick in this many binary places.
const PLACES: u32 = 32;

#[derive(Clone, Copy)]
struct Anchor {
    ticks: u64,
    wall: SystemTime,
    /// For how many ticks it holds; zero while the speed is unknown.
    holds: u64,
    /// Nanoseconds per tick.
    speed: u64,
    /// Where the present measurement of the speed began.
    measured_from: Option<(u64, Instant)>,
}

/// What a thread keeps. Two cells, so that most looks write the second only.
struct Kept {
    anchor: Cell<Anchor>,
    /// The instant given out last: a correction of a microsecond is no reason to go back.
    last: Cell<SystemTime>,
}

thread_local! {
    static KEPT: Kept = const {
        Kept {
            anchor: Cell::new(Anchor {
                ticks: 0,
                wall: SystemTime::UNIX_EPOCH,
                holds: 0,
                speed: 0,
                measured_from: None,
            }),
            last: Cell::new(SystemTime::UNIX_EPOCH),
        }
    };
}

/// The present instant.
#[inline]
pub(super) fn now() -> SystemTime {
    // While the thread's variables are being destroyed there is no anchor.
    KEPT.try_with(read).unwrap_or_else(|_| SystemTime::now())
}

#[inline]
fn read(kept: &Kept) -> SystemTime {
    let anchor = kept.anchor.get();
    let since = counter().wrapping_sub(anchor.ticks);
    if since >= anchor.holds {
        return look(kept);
    }
    // At most about a millisecond, so the product fits, and so do the nanoseconds.
    let nanos = (since * anchor.speed) >> PLACES;
    let now = anchor.wall + Duration::new(0, nanos as u32);
    let now = now.max(kept.last.get());
    kept.last.set(now);
    now
}

/// Looks at the system's clock, and sets an anchor if that is possible.
#[cold]
#[inline(never)]
fn look(kept: &Kept) -> SystemTime {
    let before = counter();
    let wall = SystemTime::now();
    let monotonic = Instant::now();
    let after = counter();
    if !is_constant() {
        return wall;
    }
    let mut anchor = kept.anchor.get();
    if after.wrapping_sub(before) <= INTERRUPTED {
        anchor.set(before, wall, monotonic);
        kept.anchor.set(anchor);
    }
    let ahead = kept.last.get().duration_since(wall).unwrap_or_default();
    if ahead.is_zero() || ahead > CORRECTION {
        kept.last.set(wall);
    }
    kept.last.get()
}

impl Anchor {
    /// Sets the anchor, and measures the speed when it is time.
    fn set(&mut self, ticks: u64, wall: SystemTime, monotonic: Instant) {
        self.ticks = ticks;
        self.wall = wall;
        let (from, since) = *self.measured_from.get_or_insert((ticks, monotonic));
        let measured = monotonic.duration_since(since);
        if measured >= MEASURE {
            self.measured_from = Some((ticks, monotonic));
            self.speed = speed(ticks.wrapping_sub(from), measured);
            self.holds = match self.speed {
                0 => 0,
                speed => ((HOLDS.as_nanos() as u64) << PLACES) / speed,
            };
        }
    }
}

/// Nanoseconds per tick; zero if that makes no sense.
fn speed(ticks: u64, took: Duration) -> u64 {
    let scaled = took.as_nanos() << PLACES;
    let speed = scaled.checked_div(ticks.into()).unwrap_or(0);
    // From 100 MHz to 100 GHz.
    let plausible = (1_u128 << PLACES) / 100..(1_u128 << PLACES) * 10;
    if plausible.contains(&speed) { speed as u64 } else { 0 }
}

/// The processor's counter.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: the instruction exists on every x86-64 processor and has no effect but its result.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Does the counter run at one speed, whatever the processor is at?
#[cfg(target_arch = "x86_64")]
fn is_constant() -> bool {
    use core::arch::x86_64::__cpuid;
    use std::sync::OnceLock;

    static CONSTANT: OnceLock<bool> = OnceLock::new();
    *CONSTANT.get_or_init(|| {
        const EXTENDED: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        __cpuid(EXTENDED).eax >= POWER && __cpuid(POWER).edx & INVARIANT != 0
    })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn counter() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn is_constant() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::{PLACES, now, speed};
    use std::time::{Duration, Instant, SystemTime};

    /// Far more than a look costs, and than an anchor may be wrong; less than what a wrong speed would make of it.
    const CLOSE: Duration = Duration::from_micros(100);

    #[test]
    fn stays_close_to_the_system_clock() {
        let start = Instant::now();
        let mut last = SystemTime::UNIX_EPOCH;
        let mut looks = 0;
        while start.elapsed() < Duration::from_millis(60) {
            let before = SystemTime::now();
            let instant = now();
            let after = SystemTime::now();
            assert!(
                instant >= before - CLOSE,
                "late by {:?}",
                before.duration_since(instant)
            );
            assert!(instant <= after + CLOSE, "early by {:?}", instant.duration_since(after));
            assert!(instant >= last, "goes back");
            last = instant;
            looks += 1;
        }
        assert!(looks > 1_000);
    }

    #[test]
    fn speeds() {
        let one_gigahertz = speed(10_000_000, Duration::from_millis(10));
        assert_eq!(one_gigahertz, 1 << PLACES);
        assert_eq!(speed(40_000_000, Duration::from_millis(10)), 1 << (PLACES - 2));
        assert_eq!(speed(0, Duration::from_millis(10)), 0, "a counter that stands still");
        assert_eq!(speed(1_000, Duration::from_millis(10)), 0, "one that crawls");
        assert_eq!(speed(u64::MAX, Duration::from_millis(10)), 0, "one that has gone back");
    }
}
