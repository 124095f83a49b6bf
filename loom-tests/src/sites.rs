//! The named orderings, fences and faults of the engine's source, and the table in `docs/memory-ordering.md` that explains
//! them. The mutants and the check that the table has not drifted read both through here.

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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operation(ordering) => ordering,
            Self::Fence => "fence",
            Self::Fault => "fault",
        })
    }
}

/// Every site in the source below `directory`, in the order of the files' names.
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
            "fence" | "named_fence" => Kind::Fence,
            "fault" => Kind::Fault,
            _ => continue,
        };
        sites.push(Site {
            name: name.to_owned(),
            kind,
            file: file.to_owned(),
            line: before.lines().count().max(1),
        });
    }
}

/// Blanks comments, so that an example in one is not taken for a site; offsets of lines stay.
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

/// One row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// The site's name.
    pub site: String,
    /// The ordering, `fence` or `fault`.
    pub ordering: String,
    /// The sites or operations it pairs with.
    pub pairs_with: String,
    /// Why it is as strong as it is.
    pub why: String,
    /// The models that fail when it is weaker, most direct first.
    pub models: Vec<String>,
    /// The changes that no model can see, each with an argument in prose.
    pub argued: Vec<String>,
    /// The line in the document, from 1.
    pub line: usize,
}

/// The rows of the table in the document `text`; a row that cannot be read is an error that names its line.
pub fn read_table(text: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(inner) = line.trim().strip_prefix("| `") else {
            continue;
        };
        let line = index + 1;
        let cells: Vec<&str> = inner
            .trim_end()
            .trim_end_matches('|')
            .split('|')
            .map(str::trim)
            .collect();
        let [site, ordering, pairs_with, why, killed_by] = cells[..] else {
            return Err(format!("line {line}: {} cells instead of 5", cells.len()));
        };
        let (models, argued) = read_killers(killed_by).map_err(|error| format!("line {line}: {error}"))?;
        rows.push(Row {
            site: site.trim_end_matches('`').to_owned(),
            ordering: ordering.to_owned(),
            pairs_with: pairs_with.to_owned(),
            why: why.to_owned(),
            models,
            argued,
            line,
        });
    }
    Ok(rows)
}

/// Reads a list such as `` `a_model`, `another`, argued Acquire ``, or a dash where there is nothing to weaken.
fn read_killers(cell: &str) -> Result<(Vec<String>, Vec<String>), String> {
    let (mut models, mut argued) = (Vec::new(), Vec::new());
    if cell == "–" {
        return Ok((models, argued));
    }
    for item in cell.split(',').map(str::trim) {
        if let Some(change) = item.strip_prefix("argued ") {
            argued.push(change.to_owned());
        } else if let Some(model) = item.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
            models.push(model.to_owned());
        } else {
            return Err(format!("cannot read {item:?} as a model or as `argued CHANGE`"));
        }
    }
    Ok((models, argued))
}

/// The body of the section of the document that argues for `site`: what follows the heading ``### `site` ``.
pub fn argument<'a>(text: &'a str, site: &str) -> Option<&'a str> {
    let heading = format!("### `{site}`\n");
    let start = text.find(&heading)? + heading.len();
    let body = &text[start..];
    let end = body.find("\n#").unwrap_or(body.len());
    Some(body[..end].trim())
}
