//! Lossless serde format for timestamps: RFC 3339 text to the nanosecond, such as `2026-11-30T03:43:12.123456789Z`.

use core::fmt;
use std::time::SystemTime;

use jiff::Timestamp;
use serde::de::Visitor;
use serde::ser::Error as _;
use serde::{Deserializer, Serializer};

/// Writes a timestamp of the years 0 to 9999. RFC 3339 cannot express other years.
pub(super) fn serialize<S: Serializer>(timestamp: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let text = Timestamp::try_from(*timestamp).map(|timestamp| format!("{timestamp:.9}"));
    match text {
        Ok(text) if !text.starts_with('-') => serializer.serialize_str(&text),
        _ => Err(S::Error::custom("timestamp is outside the years 0 to 9999")),
    }
}

/// Reads what [`serialize`] writes, and any other RFC 3339 timestamp.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    struct Rfc3339;

    impl Visitor<'_> for Rfc3339 {
        type Value = SystemTime;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an RFC 3339 timestamp such as 2026-11-30T03:43:12.123456789Z")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<SystemTime, E> {
            let timestamp = text.parse::<Timestamp>().and_then(SystemTime::try_from);
            timestamp.map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_str(Rfc3339)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct At(#[serde(with = "super")] SystemTime);

    fn format(timestamp: SystemTime) -> Option<String> {
        let json = serde_json::to_string(&At(timestamp)).ok()?;
        serde_json::from_str(&json).ok()
    }

    fn parse(text: &str) -> Option<SystemTime> {
        let json = serde_json::to_string(text).ok()?;
        serde_json::from_str(&json).ok().map(|At(timestamp)| timestamp)
    }

    #[test]
    fn known_timestamps_round_trip() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000000Z"),
            (1_796_010_192, "2026-11-30T03:43:12.000000000Z"),
            (253_402_200_000, "9999-12-30T20:00:00.000000000Z"),
        ] {
            let timestamp = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(format(timestamp).as_deref(), Some(text));
            assert_eq!(parse(text), Some(timestamp));
        }
        assert_eq!(format(UNIX_EPOCH + Duration::from_secs(253_402_300_800)), None);
        assert_eq!(format(UNIX_EPOCH - Duration::from_secs(70_000_000_000)), None);
        let before = UNIX_EPOCH - Duration::from_nanos(1);
        assert_eq!(format(before).as_deref(), Some("1969-12-31T23:59:59.999999999Z"));
        assert_eq!(parse("1969-12-31T23:59:59.999999999Z"), Some(before));
    }

    #[test]
    fn offsets_and_short_fractions_are_accepted() {
        let timestamp = UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(parse("1970-01-01T00:00:01.5Z"), Some(timestamp));
        assert_eq!(parse("1970-01-01T02:00:01.5+02:00"), Some(timestamp));
        assert_eq!(parse("1970-01-01T00:00:01Z"), Some(UNIX_EPOCH + Duration::from_secs(1)));
    }

    #[test]
    fn invalid_timestamps_are_rejected() {
        for text in [
            "",
            "Z",
            "1970-01-01T00:00:00",
            "1970-02-29T00:00:00Z",
            "1970-13-01T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.1234567890Z",
            "1970-01-01T00:00:00.+1Z",
            "1970-01-01-01T00:00:00Z",
            "1970-01-01T00:00:00é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
