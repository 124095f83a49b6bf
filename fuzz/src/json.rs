//! Detection of null characters in JSON, which Postgres cannot store as `jsonb`.

use std::fmt;

use doorbell::fuzzing::escapes_nul;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::planted::is_planted;

/// The check reports a null character if and only if serde_json finds one in a string of the document, whether the document is
/// arbitrary text or was written by serde_json.
pub fn check(data: &[u8]) {
    let json = String::from_utf8_lossy(data);
    let escapes = if is_planted() {
        json.contains("\\u0000")
    } else {
        escapes_nul(&json)
    };
    if let Ok(HasNul(has_nul)) = serde_json::from_str(&json) {
        assert_eq!(escapes, has_nul);
    }
    let written = serde_json::to_string(&json).expect("any string can be serialized");
    assert_eq!(escapes_nul(&written), json.contains('\0'));
}

/// Whether any string in a document contains a null character, including field names and duplicate fields.
struct HasNul(bool);

impl<'de> Deserialize<'de> for HasNul {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Strings)
    }
}

struct Strings;

impl<'de> Visitor<'de> for Strings {
    type Value = HasNul;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_str<E>(self, text: &str) -> Result<HasNul, E> {
        Ok(HasNul(text.contains('\0')))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<HasNul, A::Error> {
        let mut any = false;
        while let Some(HasNul(nul)) = items.next_element()? {
            any |= nul;
        }
        Ok(HasNul(any))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<HasNul, A::Error> {
        let mut any = false;
        while let Some((HasNul(name), HasNul(value))) = fields.next_entry()? {
            any |= name | value;
        }
        Ok(HasNul(any))
    }

    fn visit_unit<E>(self) -> Result<HasNul, E> {
        Ok(HasNul(false))
    }

    fn visit_bool<E>(self, _: bool) -> Result<HasNul, E> {
        Ok(HasNul(false))
    }

    fn visit_u64<E>(self, _: u64) -> Result<HasNul, E> {
        Ok(HasNul(false))
    }

    fn visit_i64<E>(self, _: i64) -> Result<HasNul, E> {
        Ok(HasNul(false))
    }

    fn visit_f64<E>(self, _: f64) -> Result<HasNul, E> {
        Ok(HasNul(false))
    }
}
