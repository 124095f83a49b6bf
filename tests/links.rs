//! Every relative link in the repository's Markdown leads to a file, and to a heading in it.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

/// The Markdown files below a folder, without hidden folders and build output.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(pages(&path));
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found
}

/// The targets of a page's links, and the anchors that GitHub makes of its headings.
fn links_and_anchors(page: &str) -> (Vec<String>, Vec<String>) {
    let (mut links, mut anchors, mut title) = (Vec::new(), Vec::new(), String::new());
    for event in Parser::new(page) {
        match event {
            Event::Start(Tag::Link { dest_url, .. }) => links.push(dest_url.to_string()),
            Event::Start(Tag::Heading { .. }) => title.clear(),
            Event::Text(text) | Event::Code(text) => title.push_str(&text.to_lowercase().replace(' ', "-")),
            Event::End(TagEnd::Heading(_)) => {
                title.retain(|c| c.is_alphanumeric() || "-_".contains(c));
                anchors.push(title.clone());
            }
            _ => {}
        }
    }
    (links, anchors)
}

/// Links to other sites are not followed.
fn is_broken(file: &Path, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        file
    } else {
        &file.with_file_name(path)
    };
    let anchors = || links_and_anchors(&fs::read_to_string(target).unwrap_or_default()).1;
    !link.contains("://") && (!target.exists() || !anchor.is_empty() && !anchors().contains(&anchor.to_owned()))
}

#[test]
fn relative_links_lead_somewhere() {
    for file in pages(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        let (mut links, _) = links_and_anchors(&fs::read_to_string(&file).unwrap());
        links.retain(|link| is_broken(&file, link));
        assert!(links.is_empty(), "{}: broken links: {links:?}", file.display());
    }
}

#[test]
fn a_broken_link_is_noticed() {
    let page = "### C4.2 A receive, with `code`\na [b](c.md#d) `[e](f)`\n```\n[g](h)\n```\n";
    let expected = (vec!["c.md#d".into()], vec!["c42-a-receive-with-code".into()]);
    assert_eq!(links_and_anchors(page), expected);
    let broken = |link| is_broken(Path::new("README.md"), link);
    assert!(!broken("https://example.org/nothing") && !broken("Cargo.toml") && !broken("docs/contract.md#terms"));
    assert!(broken("#no-such-heading") && broken("docs/no-such-file.md") && broken("docs/contract.md#no-such-heading"));
}
