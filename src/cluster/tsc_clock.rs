//! The system time at half the price: the processor's time-stamp counter (TSC), calibrated against the system clock.
//!
//! Each thread reads the system clock at most once a millisecond, and in between adds the TSC ticks since that reading. The
//! result differs from the system clock by about a microsecond, and follows a change of the system time within a millisecond.
//!
//! Falls back to reading the system clock if the TSC is missing or does not run at a constant rate, until the rate has been
//! measured, if the TSC went backwards, and if the thread was interrupted during calibration.

use core::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

/// How long a calibration is valid.
const MAX_AGE: Duration = Duration::from_millis(1);

/// The rate is measured over at least this long.
const MIN_MEASUREMENT: Duration = Duration::from_millis(10);

/// If calibrating takes more ticks than this, the thread was interrupted and its readings do not belong together.
const MAX_CALIBRATION_TICKS: u64 = 5_000;

/// How far the system clock can be behind the last time returned without having been set back.
const MAX_DRIFT: Duration = Duration::from_micros(50);

/// The number of fraction bits in [`Calibration::nanos_per_tick`].
const FRACTION_BITS: u32 = 32;

#[derive(Clone, Copy)]
struct Calibration {
    tsc: u64,
    system_time: SystemTime,
    /// For how many ticks it is valid; zero while the rate is unknown.
    valid_ticks: u64,
    /// The rate, in fixed point.
    nanos_per_tick: u64,
    /// Start of the current measurement of the rate.
    measured_from: Option<(u64, Instant)>,
}

/// The clock of one thread. Two cells, because most calls write only the second.
struct ThreadClock {
    calibration: Cell<Calibration>,
    /// The last time returned. Recalibrating by a microsecond must not make the clock go backwards.
    last: Cell<SystemTime>,
}

thread_local! {
    static CLOCK: ThreadClock = const {
        ThreadClock {
            calibration: Cell::new(Calibration {
                tsc: 0,
                system_time: SystemTime::UNIX_EPOCH,
                valid_ticks: 0,
                nanos_per_tick: 0,
                measured_from: None,
            }),
            last: Cell::new(SystemTime::UNIX_EPOCH),
        }
    };
}

/// Returns the current system time, to within about a microsecond.
#[inline]
pub(super) fn now() -> SystemTime {
    // The thread-local is gone while the thread's destructors run.
    CLOCK.try_with(ThreadClock::now).unwrap_or_else(|_| SystemTime::now())
}

impl ThreadClock {
    #[inline]
    fn now(&self) -> SystemTime {
        let calibration = self.calibration.get();
        let ticks = read_tsc().wrapping_sub(calibration.tsc);
        if ticks >= calibration.valid_ticks {
            return self.recalibrate();
        }
        // At most about a millisecond, so neither the product nor the nanoseconds overflow.
        let nanos = (ticks * calibration.nanos_per_tick) >> FRACTION_BITS;
        let now = calibration.system_time + Duration::new(0, nanos as u32);
        let now = now.max(self.last.get());
        self.last.set(now);
        now
    }

    /// Reads the system clock, and calibrates against it if possible.
    #[cold]
    #[inline(never)]
    fn recalibrate(&self) -> SystemTime {
        let before = read_tsc();
        let system_time = SystemTime::now();
        let monotonic = Instant::now();
        let after = read_tsc();
        if !has_invariant_tsc() {
            return system_time;
        }
        let mut calibration = self.calibration.get();
        if after.wrapping_sub(before) <= MAX_CALIBRATION_TICKS {
            calibration.set(before, system_time, monotonic);
            self.calibration.set(calibration);
        }
        let ahead = self.last.get().duration_since(system_time).unwrap_or_default();
        if ahead.is_zero() || ahead > MAX_DRIFT {
            self.last.set(system_time);
        }
        self.last.get()
    }
}

impl Calibration {
    /// Moves to new readings, and measures the rate if the current measurement is long enough.
    fn set(&mut self, tsc: u64, system_time: SystemTime, monotonic: Instant) {
        self.tsc = tsc;
        self.system_time = system_time;
        let (from, since) = *self.measured_from.get_or_insert((tsc, monotonic));
        let measured = monotonic.duration_since(since);
        if measured >= MIN_MEASUREMENT {
            self.measured_from = Some((tsc, monotonic));
            self.nanos_per_tick = nanos_per_tick(tsc.wrapping_sub(from), measured);
            self.valid_ticks = match self.nanos_per_tick {
                0 => 0,
                rate => ((MAX_AGE.as_nanos() as u64) << FRACTION_BITS) / rate,
            };
        }
    }
}

/// The rate in fixed point; zero if it is implausible.
fn nanos_per_tick(ticks: u64, took: Duration) -> u64 {
    let scaled = took.as_nanos() << FRACTION_BITS;
    let rate = scaled.checked_div(ticks.into()).unwrap_or(0);
    // 100 GHz to 100 MHz.
    let plausible = (1_u128 << FRACTION_BITS) / 100..(1_u128 << FRACTION_BITS) * 10;
    if plausible.contains(&rate) { rate as u64 } else { 0 }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn read_tsc() -> u64 {
    // SAFETY: the instruction exists on every x86-64 processor and has no effect but its result.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Whether the TSC runs at a constant rate in all power states.
#[cfg(target_arch = "x86_64")]
fn has_invariant_tsc() -> bool {
    use core::arch::x86_64::__cpuid;
    use std::sync::OnceLock;

    static INVARIANT: OnceLock<bool> = OnceLock::new();
    *INVARIANT.get_or_init(|| {
        const MAX_EXTENDED_LEAF: u32 = 0x8000_0000;
        const POWER_MANAGEMENT_LEAF: u32 = 0x8000_0007;
        const INVARIANT_TSC: u32 = 1 << 8;
        __cpuid(MAX_EXTENDED_LEAF).eax >= POWER_MANAGEMENT_LEAF
            && __cpuid(POWER_MANAGEMENT_LEAF).edx & INVARIANT_TSC != 0
    })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn read_tsc() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_invariant_tsc() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::{FRACTION_BITS, nanos_per_tick, now};
    use std::time::{Duration, Instant, SystemTime};

    /// Far more than a reading costs or a calibration drifts, and less than the error of a wrong rate.
    const TOLERANCE: Duration = Duration::from_micros(100);

    #[test]
    fn stays_close_to_the_system_clock() {
        let start = Instant::now();
        let mut last = SystemTime::UNIX_EPOCH;
        let mut readings = 0;
        while start.elapsed() < Duration::from_millis(60) {
            let before = SystemTime::now();
            let time = now();
            let after = SystemTime::now();
            assert!(time >= before - TOLERANCE, "late by {:?}", before.duration_since(time));
            assert!(time <= after + TOLERANCE, "early by {:?}", time.duration_since(after));
            assert!(time >= last, "the clock went backwards");
            last = time;
            readings += 1;
        }
        assert!(readings > 1_000);
    }

    #[test]
    fn implausible_rates_are_rejected() {
        let measured = Duration::from_millis(10);
        assert_eq!(nanos_per_tick(10_000_000, measured), 1 << FRACTION_BITS, "1 GHz");
        assert_eq!(nanos_per_tick(40_000_000, measured), 1 << (FRACTION_BITS - 2), "4 GHz");
        assert_eq!(nanos_per_tick(0, measured), 0, "a stopped counter");
        assert_eq!(nanos_per_tick(1_000, measured), 0, "a counter that is too slow");
        assert_eq!(nanos_per_tick(u64::MAX, measured), 0, "a counter that went backwards");
    }
}
