//! The notification channel of a schema, as the SQL function `notification_channel()` derives it.

use std::fmt::Write as _;
use std::sync::Arc;

use md5::{Digest as _, Md5};

use super::{DEFAULT_CHANNEL, DEFAULT_SCHEMA};

/// Postgres refuses longer channels.
const MAX_CHANNEL_BYTES: usize = 63;

pub(super) fn of_schema(schema: &str) -> Arc<str> {
    if schema == DEFAULT_SCHEMA {
        return DEFAULT_CHANNEL.into();
    }
    let channel = format!("{DEFAULT_CHANNEL}_{schema}");
    if channel.len() <= MAX_CHANNEL_BYTES {
        return channel.into();
    }
    // Another separator, so that no short name has the channel of a long one.
    let mut channel = format!("{DEFAULT_CHANNEL}-");
    for byte in Md5::digest(schema) {
        let _ = write!(channel, "{byte:02x}"); // writing to a string cannot fail
    }
    channel.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_follows_from_the_schema() {
        assert_eq!(&*of_schema("doorbell"), "doorbell");
        assert_eq!(&*of_schema("Fleet \"1\""), "doorbell_Fleet \"1\"");
        let longest = "s".repeat(54);
        assert_eq!(*of_schema(&longest), format!("doorbell_{longest}"));
        assert_eq!(
            &*of_schema(&"s".repeat(55)),
            "doorbell-157162c9be1e28fc944e29f10284146d"
        );
    }
}
