//! Text whose clones are cheap on every thread at once.

use core::borrow::Borrow;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;
use std::sync::Arc;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest text that is kept in place.
const IN_PLACE: usize = 22;

/// The text of an event: a name, an address, a reason.
///
/// It is cloned once for each console, often on several threads at once. Up to 22 bytes are kept in place, so that a clone copies
/// three words; a counter that threads share would cost more than that. Longer texts are shared behind one.
///
/// ```
/// use doorbell::cluster::Text;
///
/// let peer: Text = "alpha".into();
/// assert_eq!(peer, "alpha");
/// assert_eq!(peer.len(), 5);
/// assert_eq!(peer.clone().to_uppercase(), "ALPHA");
/// ```
pub struct Text(Kind);

enum Kind {
    /// The first `length` bytes are text.
    InPlace {
        length: u8,
        bytes: [u8; IN_PLACE],
    },
    Shared(Arc<str>),
}

impl Text {
    /// The text.
    ///
    /// ```
    /// assert_eq!(doorbell::cluster::Text::from("alpha").as_str(), "alpha");
    /// ```
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Kind::InPlace { length, bytes } => {
                let bytes = &bytes[..usize::from(*length)];
                // SAFETY: `in_place` has copied exactly these bytes from a `str`, and nothing changes them.
                unsafe { core::str::from_utf8_unchecked(bytes) }
            }
            Kind::Shared(text) => text,
        }
    }

    fn in_place(text: &str) -> Option<Self> {
        let mut bytes = [0; IN_PLACE];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        let length = text.len() as u8;
        Some(Self(Kind::InPlace { length, bytes }))
    }
}

impl Clone for Text {
    #[inline]
    fn clone(&self) -> Self {
        /// Apart, so that the usual clone is a copy of whole words: whoever moves it next would have to wait for single bytes
        /// to come together.
        #[cold]
        #[inline(never)]
        fn share(text: &Arc<str>) -> Text {
            Text(Kind::Shared(text.clone()))
        }

        match &self.0 {
            Kind::Shared(text) => share(text),
            // SAFETY: this variant is plain data, which may be copied, and the reference is to a valid one.
            Kind::InPlace { .. } => unsafe { core::ptr::read(self) },
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::in_place(text).unwrap_or_else(|| Self(Kind::Shared(text.into())))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::in_place(&text).unwrap_or_else(|| Self(Kind::Shared(text.into())))
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Self {
        Self::in_place(&text).unwrap_or(Self(Kind::Shared(text)))
    }
}

impl Default for Text {
    fn default() -> Self {
        Self::from("")
    }
}

impl Deref for Text {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text {}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

// As of `str`, which maps keyed by `Text` can be asked for.
impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyText;

        impl Visitor<'_> for AnyText {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_str<E>(self, text: &str) -> Result<Text, E> {
                Ok(text.into())
            }

            fn visit_string<E>(self, text: String) -> Result<Text, E> {
                Ok(text.into())
            }
        }

        deserializer.deserialize_string(AnyText)
    }
}

#[cfg(test)]
mod tests {
    use super::{IN_PLACE, Kind, Text};
    use std::collections::{BTreeMap, HashMap};
    use std::sync::Arc;

    #[test]
    fn every_length_is_kept_as_it_is() {
        let long = "äöü€😀".repeat(20);
        for (end, _) in long.char_indices() {
            let text = &long[..end];
            for made in [Text::from(text), text.to_owned().into(), Arc::<str>::from(text).into()] {
                assert_eq!(made.as_str(), text);
                assert_eq!(made.clone(), made);
                assert_eq!(matches!(made.0, Kind::InPlace { .. }), end <= IN_PLACE);
                let json = serde_json::to_string(&made).unwrap();
                assert_eq!(json, serde_json::to_string(text).unwrap());
                assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), made);
            }
        }
    }

    #[test]
    fn takes_three_words() {
        assert_eq!(size_of::<Text>(), 24);
    }

    #[test]
    fn is_compared_and_looked_up_as_str() {
        let words = ["", "a", "ab", "b", "a text that is too long to be kept in place"];
        for left in words {
            for right in words {
                let (first, second) = (Text::from(left), Text::from(right));
                assert_eq!(first == second, left == right);
                assert_eq!(first.cmp(&second), left.cmp(right));
                assert_eq!(first == right, left == right);
            }
        }
        let sorted: BTreeMap<Text, usize> = words.into_iter().map(Text::from).zip(0..).collect();
        let hashed: HashMap<Text, usize> = words.into_iter().map(Text::from).zip(0..).collect();
        for (index, word) in words.into_iter().enumerate() {
            assert_eq!(sorted.get(word), Some(&index));
            assert_eq!(hashed.get(word), Some(&index));
        }
    }
}
