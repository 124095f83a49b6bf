//! Every relative link in the repository's Markdown leads somewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The tracked Markdown files; in a copy without git, all that lie outside build output.
fn markdown_files() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--", "*.md"])
        .current_dir(repository())
        .output();
    match listed {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout)
            .expect("file names in UTF-8")
            .split_terminator('\0')
            .map(|name| repository().join(name))
            // Deleted, but not yet committed.
            .filter(|path| path.exists())
            .collect(),
        _ => walk(repository()),
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" {
                found.extend(walk(&path));
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found
}

/// The text without fenced blocks and inline code, where brackets mean nothing.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            for (index, part) in line.split('`').enumerate() {
                kept.push_str(if index % 2 == 0 { part } else { "code" });
            }
            kept.push('\n');
        }
    }
    kept
}

/// The targets of `[text](target)`.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    prose
        .match_indices("](")
        .filter_map(|(at, start)| prose[at + start.len()..].split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// The anchors that headings give, as GitHub forms them.
fn anchors(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim())
        .map(|title| {
            title
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// Why a link found in `file` leads nowhere, if so.
fn complaint(file: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target
        .split_once('#')
        .map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let there = if path.is_empty() {
        file.to_owned()
    } else {
        file.parent().expect("a file has a folder").join(path)
    };
    if !there.exists() {
        return Some(format!("{} does not exist", there.display()));
    }
    let anchor = anchor?;
    let text = fs::read_to_string(&there).unwrap_or_default();
    (!anchors(&text).iter().any(|known| known == anchor)).then(|| format!("no heading for #{anchor}"))
}

#[test]
fn relative_links_lead_somewhere() {
    let files = markdown_files();
    assert!(!files.is_empty(), "no Markdown found");
    let mut broken = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a readable Markdown file");
        for target in links(&text) {
            if let Some(why) = complaint(file, &target) {
                broken.push(format!("{}: ({target}): {why}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn a_broken_link_is_noticed() {
    let readme = repository().join("README.md");
    assert_eq!(links("a [b](c.md#d) `[e](f)`\n```\n[g](h)\n```\n"), ["c.md#d"]);
    assert_eq!(complaint(&readme, "https://example.org/nothing"), None);
    assert_eq!(complaint(&readme, "Cargo.toml"), None);
    assert_eq!(complaint(&readme, "#licence"), None);
    assert!(complaint(&readme, "#no-such-heading").is_some());
    assert!(complaint(&readme, "docs/no-such-file.md").is_some());
    assert_eq!(anchors("### C4.2 A receive, with `code`"), ["c42-a-receive-with-code"]);
}
