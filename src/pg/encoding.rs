//! Characters that the encoding of the database lacks.

use std::collections::BTreeSet;

use parking_lot::RwLock;

/// The SQLSTATE untranslatable_character.
const UNTRANSLATABLE: &str = "22P05";

/// Returns the character that the server could not store, if the error is about one.
pub(crate) fn untranslatable(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error()?;
    (error.code()? == UNTRANSLATABLE).then(|| named_in(error.message()))?
}

/// The character in a message of the server like: character with byte sequence 0xe2 0x98 0x83 in encoding "UTF8" has no equivalent.
pub(crate) fn named_in(message: &str) -> Option<String> {
    let bytes = message
        .split_whitespace()
        .filter_map(|word| u8::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    String::from_utf8(bytes.collect())
        .ok()
        .filter(|character| !character.is_empty())
}

/// The characters that the server is known to lack. A statement with one of them fails as a whole, so texts that contain one must not
/// be sent.
#[derive(Debug, Default)]
pub(crate) struct Untranslatable(RwLock<BTreeSet<String>>);

impl Untranslatable {
    /// Learns from an error. Returns whether it has named a character that was not known.
    pub(crate) fn learn(&self, error: &sqlx::Error) -> bool {
        untranslatable(error).is_some_and(|character| self.0.write().insert(character))
    }

    pub(crate) fn is_in(&self, text: &str) -> bool {
        let characters = self.0.read();
        characters.iter().any(|character| text.contains(&**character))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_character_is_found_in_messages_of_any_language() {
        let english = "character with byte sequence 0xf0 0x9f 0x94 0x94 in encoding \"UTF8\" has no equivalent in encoding \"LATIN1\"";
        assert_eq!(named_in(english).as_deref(), Some("\u{1f514}"));
        let german =
            "Zeichen mit Byte-Folge 0xe2 0x98 0x83 in Kodierung »UTF8« hat keine Entsprechung in Kodierung »LATIN1«";
        assert_eq!(named_in(german).as_deref(), Some("\u{2603}"));
        assert_eq!(named_in("no such character"), None);
    }
}
