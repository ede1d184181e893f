//! Documents point at what is there.

use std::collections::BTreeSet;
use std::path::Path;

use crate::none;
use crate::repository::{self, File};

#[test]
fn every_link_between_documents_leads_somewhere() {
    let is_document = |file: &File| file.extension() == Some("md") && !file.path.starts_with("templates/");
    let documents = repository::files().into_iter().filter(is_document);
    none(
        "links that lead nowhere",
        documents.flat_map(|file| broken_links(&file)),
    );
}

#[test]
fn the_index_of_decisions_lists_each_of_them() {
    let in_folder = |file: &File| Some(file.path.strip_prefix("docs/adr/")?.to_owned());
    let written: BTreeSet<String> = repository::files().iter().filter_map(in_folder).collect();
    let mut listed: BTreeSet<String> = links(&repository::text("docs/adr/README.md"))
        .map(|(_, link)| link)
        .collect();
    listed.insert("README.md".to_owned());
    let differing = written.symmetric_difference(&listed).cloned();
    none(
        "decisions that docs/adr/README.md does not list, or that it lists and are not there",
        differing,
    );
}

/// docs/README.md is the list of the pages for readers on GitHub.
#[test]
fn the_site_has_every_page() {
    let page = |file: &File| {
        let path = file.path.strip_prefix("docs/")?;
        (file.extension() == Some("md")).then(|| path.to_owned())
    };
    let mut written: BTreeSet<String> = repository::files().iter().filter_map(page).collect();
    written.retain(|path| !["README.md", "SUMMARY.md"].contains(&path.as_str()));
    let listed: BTreeSet<String> = links(&repository::text("docs/SUMMARY.md"))
        .map(|(_, link)| link)
        .collect();
    let differing = written.symmetric_difference(&listed).cloned();
    none(
        "pages that docs/SUMMARY.md does not list, or that it lists and are not there",
        differing,
    );
}

/// On the site only `docs/` is there: other files are linked by the address of the repository.
#[test]
fn pages_of_the_site_link_to_pages_of_the_site() {
    let leaves = |file: &File, link: &str| {
        let depth = file.path.matches('/').count() - 1;
        link.matches("../").count() > depth
    };
    let pages = repository::files().into_iter().filter(|file| {
        file.path.starts_with("docs/") && file.extension() == Some("md") && file.path != "docs/README.md"
    });
    let findings = pages.flat_map(|file| {
        let leaving: Vec<_> = links(&file.text)
            .filter(|(_, link)| leaves(&file, link))
            .collect();
        leaving
            .into_iter()
            .map(move |(line, link)| format!("{}:{line}: {link}", file.path))
    });
    none("links that leave the site", findings);
}

#[test]
fn every_crate_that_is_built_on_has_its_reason() {
    let document = repository::text("ARCHITECTURE.md");
    let unexplained = dependencies(&repository::text("Cargo.toml"))
        .into_iter()
        .filter(|name| !document.contains(&format!("`{name}`")));
    none("crates without a reason in ARCHITECTURE.md", unexplained);
}

/// The guides promise these examples in so many lines, imports included.
#[test]
fn the_short_examples_are_short() {
    let limits = [("examples/docker_claude.rs", 25), ("examples/image.rs", 20)];
    let too_long = limits.into_iter().filter_map(|(path, limit)| {
        let lines = repository::text(path).lines().count();
        (lines > limit).then(|| format!("{path} has {lines} lines, not {limit}"))
    });
    none("examples that are too long", too_long);
}

#[test]
fn the_table_of_suites_lists_each_of_them() {
    let folder = |file: &File| {
        let name = file.path.strip_prefix("tests/")?.strip_suffix("/main.rs")?;
        (!name.contains('/')).then(|| name.to_owned())
    };
    let mut written: BTreeSet<String> = repository::files().iter().filter_map(folder).collect();
    written.insert("unit".to_owned());
    let listed = listed_suites(&repository::text("CONTRIBUTING.md"));
    let differing = written.symmetric_difference(&listed).cloned();
    none(
        "suites that CONTRIBUTING.md does not list, or that it lists and are not there",
        differing,
    );
}

#[test]
fn the_pages_on_how_to_add_something_name_files_that_exist() {
    let pages: Vec<File> = repository::files()
        .into_iter()
        .filter(|file| file.path.starts_with("docs/how-to/add-"))
        .collect();
    let subjects = [
        "provider",
        "agent",
        "policy-rule",
        "forge",
        "command",
        "configuration-key",
    ];
    let page = |subject: &str| format!("docs/how-to/add-a-{subject}.md").replace("a-agent", "an-agent");
    let missing = subjects
        .into_iter()
        .map(page)
        .filter(|path| !pages.iter().any(|file| file.path == *path));
    none("pages that are missing", missing);
    none(
        "files that are named and do not exist",
        pages.iter().flat_map(missing_files),
    );
}

/// Messages of the troubleshooting page that the code joins from parts.
const JOINED_MESSAGES: [&str; 11] = [
    "the ... provider cannot enforce the network policy: ...",
    "... is a shallow clone: a run needs a repository with its complete history",
    "... is a partial clone: ...",
    "its holder cannot listen at ...",
    "disk space: ... MB are free ..., at least ... MB are needed",
    "file names: ... and ... are one file here: the file system ignores case",
    "credential...: no credential found",
    "agent ...: it does not run in the sandbox: ...",
    "there is no remote ..., so the pull request has no place",
    "the evidence for commit ... is not verified: none of the trusted keys signed it; ...",
    "RALPH_API_TOKEN is not set, and ... needs a token",
];

#[test]
fn every_message_of_the_troubleshooting_page_is_in_the_code() {
    let page = repository::text("docs/troubleshooting.md");
    let code: String = repository::sources()
        .iter()
        .map(|file| plain_code(&file.text))
        .collect();
    let literals: Vec<&str> = code.lines().filter(|line| line.contains('"')).collect();
    let is_in_code = |message: &&str| literals.iter().any(|line| holds_message(line, message));
    let is_joined = |message: &&str| JOINED_MESSAGES.contains(message);
    let messages = code_in_first_cells(&page);
    assert!(messages.len() > 150, "{messages:?}");
    let missing = messages
        .iter()
        .filter(|message| !is_joined(message) && !is_in_code(message));
    none(
        "messages that are not in the code",
        missing.map(|message| (*message).to_owned()),
    );
    let needless = JOINED_MESSAGES
        .iter()
        .filter(|message| !messages.contains(message) || is_in_code(message));
    none(
        "exceptions that are not needed",
        needless.map(|message| (*message).to_owned()),
    );
}

/// What is in backticks in the first cells of all tables.
pub fn code_in_first_cells(page: &str) -> Vec<&str> {
    let cells = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

/// Code with continued string literals on one line, and without escaped quotes and backticks.
fn plain_code(text: &str) -> String {
    let parts: Vec<&str> = text.split("\\\n").collect();
    let joined: Vec<&str> = std::iter::once(parts[0])
        .chain(parts[1..].iter().map(|part| part.trim_start()))
        .collect();
    joined.concat().replace("\\\"", "\"").replace('`', "") + "\n"
}

/// Whether a line holds the parts of a message in their order. `...` stands for what varies.
fn holds_message(line: &str, message: &str) -> bool {
    let mut rest = line;
    message.split("...").all(|part| {
        let found = rest.split_once(part.trim_matches([' ', ':', ';', ',', '.']));
        rest = found.map_or(rest, |(_, after)| after);
        found.is_some()
    })
}

/// The first cells of the table below `| suite | holds |`.
fn listed_suites(document: &str) -> BTreeSet<String> {
    let rows = document
        .lines()
        .skip_while(|line| !line.starts_with("| suite |"))
        .skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.split('`').nth(1))
        .map(str::to_owned)
        .collect()
}

/// The files of the list below `## Files` that do not exist. A name in angle brackets stands for the new file.
fn missing_files(page: &File) -> Vec<String> {
    let list = page.text.split("\n## Files\n").nth(1).unwrap_or_default();
    let named: Vec<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split('`').next())
        .collect();
    if named.is_empty() {
        return vec![format!("{}: no list of files", page.path)];
    }
    let is_missing = |name: &&str| {
        let existing = name.split('<').next().unwrap_or_default();
        !repository::root().join(existing).exists()
    };
    let shown = |name| format!("{}: {name}", page.path);
    named.into_iter().filter(is_missing).map(shown).collect()
}

/// The names below `[dependencies]` and `[dev-dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut listed = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            listed = matches!(line, "[dependencies]" | "[dev-dependencies]");
        } else if let Some((name, _)) = line.split_once('=').filter(|_| listed) {
            names.push(name.trim().to_owned());
        }
    }
    names
}

fn broken_links(file: &File) -> Vec<String> {
    let folder = repository::root()
        .join(&file.path)
        .parent()
        .map(Path::to_owned)
        .unwrap_or_default();
    let is_broken = |(_, link): &(usize, String)| {
        let (path, section) = link.split_once('#').unwrap_or((link, ""));
        let target = match path.strip_prefix('/') {
            Some(path) => repository::root().join(path),
            None if path.is_empty() => repository::root().join(&file.path),
            None => folder.join(path),
        };
        let is_page = target.extension().is_some_and(|extension| extension == "md");
        let has_section = || {
            let text = if path.is_empty() {
                file.text.clone()
            } else {
                std::fs::read_to_string(&target).unwrap()
            };
            sections(&text).contains(section)
        };
        !target.exists() && !path.is_empty() || is_page && !section.is_empty() && !has_section()
    };
    let shown = |(line, link)| format!("{}:{line}: {link}", file.path);
    links(&file.text).filter(is_broken).map(shown).collect()
}

/// The names by which links lead to the headings of a Markdown text: its words in small letters, joined by `-`.
fn sections(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let headings = text.lines().filter(move |line| {
        in_code ^= line.starts_with("```");
        !in_code && line.starts_with('#')
    });
    let name = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().chars();
        kept.filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
            .collect()
    };
    headings.map(name).collect()
}

/// Where the files of this repository are on the web.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main");

/// The links `[text](path#section)` of a Markdown text to files of this repository, with their lines; not those in blocks of code.
/// One by the address of the repository begins with `/`.
fn links(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut in_code = false;
    let prose = text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    let in_line = |line: &str| {
        let ends = line
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split([')', ' ']).next())
            .map(|link| link.strip_prefix(REPOSITORY).unwrap_or(link));
        ends.filter(|link| !link.is_empty() && !link.contains(':'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    prose.flat_map(move |(index, line)| in_line(line).into_iter().map(move |link| (index + 1, link)))
}

mod tests {
    use super::{
        REPOSITORY, broken_links, code_in_first_cells, dependencies, holds_message, links, listed_suites,
        missing_files, plain_code,
    };
    use crate::repository::File;

    #[test]
    fn only_relative_links_of_the_prose_count() {
        let text = "[a](b.md) [c](d/e.md#part)\n```\n[f](g)\n```\n[h](https://i.example) [j](#k) [l](m)";
        let found: Vec<_> = links(text).collect();
        let expected = [(1, "b.md"), (1, "d/e.md#part"), (5, "#k"), (5, "m")]
            .map(|(line, link)| (line, link.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_dependency_is_a_line_of_its_section() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\na = \"1\"\n\nb-c = { version = \"2\" }\n[lints]\nd = 1\n[dev-dependencies]\ne = \"3\"\n";
        assert_eq!(dependencies(manifest), ["a", "b-c", "e"]);
    }

    #[test]
    fn a_suite_is_a_row_of_its_table() {
        let text =
            "| other |\n| `x` |\n\n| suite | holds |\n|---|---|\n| `a` | b `c` |\n| `d` | e |\n\n| `f` |";
        assert_eq!(listed_suites(text).into_iter().collect::<Vec<_>>(), ["a", "d"]);
    }

    #[test]
    fn a_message_is_found_by_its_parts() {
        let page = "| message | cause |\n|---|---|\n| `a ... b`, `c` (401) | `d` |\n| e | f |\n`g`\n";
        assert_eq!(code_in_first_cells(page), ["a ... b", "c"]);
        let code = plain_code("format!(\n    \"cannot reach `{name}`: \\\n     it says \\\"no\\\"\"\n)");
        let line = code.lines().nth(1).unwrap();
        assert!(holds_message(line, "cannot reach ...: it says \"no\""));
        assert!(!holds_message(line, "it says ... cannot reach"));
    }

    #[test]
    fn a_page_names_files_that_exist_or_are_new() {
        let page = |text: &str| File {
            path: "docs/how-to/x.md".into(),
            text: text.into(),
        };
        let list =
            "# X\n\n## Files\n\n- `src/lib.rs`: a\n- `src/agent/<name>.rs`: new\n- `src/nowhere.rs`: b\n";
        assert_eq!(missing_files(&page(list)), ["docs/how-to/x.md: src/nowhere.rs"]);
        assert_eq!(
            missing_files(&page("# X\n")),
            ["docs/how-to/x.md: no list of files"]
        );
    }

    #[test]
    fn a_link_is_followed_from_its_own_document() {
        let text = format!(
            "# One `word`: two\n[a](main.rs) [b](../run) [c](nowhere.md) [d]({REPOSITORY}/src) [e]({REPOSITORY}/nowhere) \
             [f](#one-word-two) [g](#three) [h](../../README.md#none) [i]({REPOSITORY}/README.md#more)"
        );
        let file = File {
            path: "tests/tidy/x.md".into(),
            text,
        };
        let broken = ["nowhere.md", "/nowhere", "#three", "../../README.md#none"];
        assert_eq!(
            broken_links(&file),
            broken.map(|link| format!("tests/tidy/x.md:2: {link}"))
        );
    }
}
