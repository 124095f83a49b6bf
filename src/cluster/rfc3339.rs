//! Instants as text: `2026-11-30T03:43:12.123456789Z`, to the nanosecond and without loss, for serde.

use core::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::{Error as _, Visitor};
use serde::ser::Error as _;
use serde::{Deserializer, Serializer};

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// Writes an instant of the years 0 to 9999; others have no such text.
pub(super) fn serialize<S: Serializer>(instant: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    match format(*instant) {
        Some(text) => serializer.serialize_str(&text),
        None => Err(S::Error::custom("the instant lies outside the years 0 to 9999")),
    }
}

/// Reads what [`serialize`] writes.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    struct Text;

    impl Visitor<'_> for Text {
        type Value = SystemTime;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an instant like 2026-11-30T03:43:12.123456789Z")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SystemTime, E> {
            parse(text).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_str(Text).map_err(D::Error::custom)
}

fn format(instant: SystemTime) -> Option<String> {
    let (seconds, nanos) = match instant.duration_since(UNIX_EPOCH) {
        Ok(since) => (i64::try_from(since.as_secs()).ok()?, since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = -i64::try_from(before.as_secs()).ok()?;
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanos => (seconds - 1, 1_000_000_000 - nanos),
            }
        }
    };
    let (year, month, day) = civil(seconds.div_euclid(SECONDS_PER_DAY));
    if !(0..=9999).contains(&year) {
        return None;
    }
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    Some(format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z"
    ))
}

fn parse(text: &str) -> Option<SystemTime> {
    let text = text.strip_suffix('Z')?;
    let (date, time) = text.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let in_range = (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
    if !in_range || fraction.is_empty() || fraction.len() > 9 {
        return None;
    }
    let days = days(year, month, day);
    if civil(days) != (year, month, day) {
        return None;
    }
    let scale = 10_u32.pow(9 - fraction.len() as u32);
    let nanos = digits(fraction)? as u32 * scale;
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    whole?.checked_add(Duration::from_nanos(nanos.into()))
}

/// Three numbers between two separators.
fn numbers(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator).map(digits);
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

/// Up to nine digits, and nothing else.
fn digits(text: &str) -> Option<i64> {
    let all_digits = (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().ok())?
}

/// The date of a day counted from 1970-01-01. Years are counted from March on, so that the leap day comes last; 146097 days
/// make 400 years.
fn civil(days: i64) -> (i64, i64, i64) {
    let since_march_0000 = days + 719_468;
    let era = since_march_0000.div_euclid(146_097);
    let day_of_era = since_march_0000.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// The inverse of [`civil`]; for a day that its month does not have, some other day.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    year.div_euclid(400) * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::{civil, days, format, parse};
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn known_instants() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_796_010_192, "2026-11-30T03:43:12.000000000Z"),
            (253_402_300_799, "9999-12-31T23:59:59.000000000Z"),
        ] {
            let instant = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(format(instant).as_deref(), Some(text));
            assert_eq!(parse(text), Some(instant));
        }
        assert_eq!(format(UNIX_EPOCH + Duration::from_secs(253_402_300_800)), None);
        let before = UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(format(before).as_deref(), Some("1969-12-31T23:59:59.999999999Z"));
        assert_eq!(parse("1969-12-31T23:59:59.999999999Z"), Some(before));
    }

    #[test]
    fn every_day_of_ten_thousand_years() {
        let mut expected = (0, 1, 1);
        for day in days(0, 1, 1)..=days(9999, 12, 31) {
            let (year, month, date) = civil(day);
            assert_eq!((year, month, date), expected);
            assert_eq!(days(year, month, date), day);
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + i64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            expected = match (month, date) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == length => (year, month + 1, 1),
                _ => (year, month, date + 1),
            };
        }
    }

    #[test]
    fn shorter_fractions() {
        let instant = UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(parse("1970-01-01T00:00:01.5Z"), Some(instant));
        assert_eq!(parse("1970-01-01T00:00:01Z"), Some(UNIX_EPOCH + Duration::from_secs(1)));
    }

    #[test]
    fn what_is_no_instant() {
        for text in [
            "",
            "Z",
            "1970-01-01T00:00:00",
            "1970-01-01 00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.1234567890Z",
            "1970-01-01T00:00:00.+1Z",
            "-970-01-01T00:00:00Z",
            "1970-01-01-01T00:00:00Z",
            "1970-01-01T00:00:00é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
