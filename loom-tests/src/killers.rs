//! Reads `killed-by.txt`: which models kill the mutants of each site, and which mutants are argued for instead.

use std::collections::BTreeMap;

/// What is known about the mutants of one site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Killers {
    /// The models that fail when the site is weakened, most direct first.
    pub models: Vec<String>,
    /// The changes that no model can see.
    pub argued: Vec<String>,
}

/// Reads lines such as `site: a_model, another, argued Acquire`; `#` starts a comment.
///
/// # Errors
/// Names the line that cannot be read.
pub fn read(text: &str) -> Result<BTreeMap<String, Killers>, String> {
    let mut all = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (site, list) = line
            .split_once(": ")
            .ok_or_else(|| format!("line {}: no `site: models`", index + 1))?;
        let mut killers = Killers::default();
        for item in list.split(", ") {
            match item.strip_prefix("argued ") {
                Some(change) => killers.argued.push(change.to_owned()),
                None => killers.models.push(item.to_owned()),
            }
        }
        if all.insert(site.to_owned(), killers).is_some() {
            return Err(format!("line {}: {site} has two lines", index + 1));
        }
    }
    Ok(all)
}
