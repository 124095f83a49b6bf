//! Finds the named orderings, fences and faults in the engine's source, with the comments that explain them.
//!
//! The explanation of a site is the nearest comment above it, in the same function, that begins with its ordering:
//!
//! ```text
//! // Release, pairs with `closed.see`: a thread that sees the channel closed sees everything published.
//! // SeqCst fence, pairs with `park.fence`: …
//! // Fault, breaks the rule that a lost event is not delivered: …
//! ```

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What stands at a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An operation with this ordering.
    Operation(String),
    /// A sequentially consistent fence.
    Fence,
    /// A protocol fault that only a mutant plants.
    Fault,
}

/// One named place in the engine.
#[derive(Debug, Clone)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// What stands there.
    pub kind: Kind,
    /// The file, relative to the source directory.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// What its comment says, if there is one.
    pub explanation: Option<Explanation>,
}

/// What the comment above a site says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The sites it pairs with; for a fault, the rule that it breaks.
    pub pairs_with: String,
    /// Why the ordering is this strong; for a fault, what goes wrong.
    pub why: String,
}

impl Site {
    /// What the mutants do to this site, as they are written on the command line.
    pub fn changes(&self) -> &'static [&'static str] {
        match &self.kind {
            Kind::Operation(ordering) => match ordering.as_str() {
                "AcqRel" => &["Acquire", "Release", "Relaxed"],
                "Acquire" | "Release" => &["Relaxed"],
                _ => &[],
            },
            Kind::Fence => &["AcqRel", "dropped"],
            Kind::Fault => &["planted"],
        }
    }
}

impl Kind {
    /// The word that the comment above such a site starts with.
    fn comment_prefix(&self) -> &str {
        match self {
            Self::Operation(ordering) => ordering,
            Self::Fence => "SeqCst",
            Self::Fault => "Fault",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operation(ordering) => ordering,
            Self::Fence => "fence",
            Self::Fault => "fault",
        })
    }
}

/// Finds every site in the source below `directory`, sorted by file.
pub fn scan(directory: &Path) -> io::Result<Vec<Site>> {
    let mut files = Vec::new();
    find_sources(directory, &mut files)?;
    files.sort();
    let mut sites = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        let relative = file.strip_prefix(directory).unwrap_or(&file).to_owned();
        scan_text(&text, &relative, &mut sites);
    }
    Ok(sites)
}

fn find_sources(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            find_sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

fn scan_text(text: &str, file: &Path, sites: &mut Vec<Site>) {
    let code = without_line_comments(text);
    let lines: Vec<&str> = text.lines().collect();
    for (position, _) in code.match_indices("!(") {
        let before = &code[..position];
        let macro_name = &before[before
            .rfind(|c: char| !c.is_alphanumeric() && c != '_')
            .map_or(0, |at| at + 1)..];
        let Some((name, rest)) = string_literal(&code[position + 2..]) else {
            continue;
        };
        let kind = match macro_name {
            "ord" => {
                let ordering = rest.trim_start().trim_start_matches(',').trim_start();
                let end = ordering.find(|c: char| !c.is_alphanumeric()).unwrap_or(ordering.len());
                Kind::Operation(ordering[..end].to_owned())
            }
            "named_fence" | "light_barrier" | "heavy_barrier" => Kind::Fence,
            "fault" => Kind::Fault,
            _ => continue,
        };
        let line = before.lines().count().max(1);
        sites.push(Site {
            name: name.to_owned(),
            explanation: explanation(&lines[..line - 1], kind.comment_prefix()),
            kind,
            file: file.to_owned(),
            line,
        });
    }
}

/// Reads the nearest comment in `above` that starts with `prefix`, unless a function begins below it.
fn explanation(above: &[&str], prefix: &str) -> Option<Explanation> {
    let is_function = |line: &&str| line.trim_start().starts_with("fn ") || line.contains(" fn ");
    let is_start = |line: &&str| comment(line).is_some_and(|text| text.starts_with(prefix));
    let at = above
        .iter()
        .rposition(|line| is_start(line) || comment(line).is_none() && is_function(line))?;
    let mut text = comment(above[at])?.to_owned();
    for line in &above[at + 1..] {
        match comment(line) {
            Some(more) if !begins_explanation(more) => text = text + " " + more,
            _ => break,
        }
    }
    let (head, why) = text.split_once(": ")?;
    let pairs_with = head
        .strip_prefix(prefix)?
        .trim_start_matches(" fence")
        .trim_start_matches(" light barrier")
        .trim_start_matches(" heavy barrier")
        .trim_start_matches(", pairs with ")
        .trim_start_matches(", breaks ");
    Some(Explanation {
        pairs_with: pairs_with.to_owned(),
        why: why.trim_end_matches('.').to_owned(),
    })
}

/// The text of a line that is nothing but a comment, and not documentation.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    (!text.starts_with(['/', '!'])).then(|| text.trim())
}

fn begins_explanation(text: &str) -> bool {
    const BEGINNINGS: [&str; 7] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst", "Fault", "SAFETY"];
    let word = text.split(|c: char| !c.is_alphanumeric()).next();
    word.is_some_and(|word| BEGINNINGS.contains(&word))
}

/// Blanks comments, so that an example in one is not taken for a site; line numbers stay.
fn without_line_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        // No string of the engine contains two slashes.
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

/// The string literal that `code` starts with, and what follows it.
fn string_literal(code: &str) -> Option<(&str, &str)> {
    code.trim_start().strip_prefix('"')?.split_once('"')
}
