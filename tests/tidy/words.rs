//! The words that docs/glossary.md bans, in the code and the documents.

use crate::none;
use crate::repository::{self, File};

/// The page that lists them.
const GLOSSARY: &str = "docs/glossary.md";

/// The page with names that are gone.
const OLD_NAMES: &str = "docs/reference/library-0.2.md";

/// This file, whose tests use such words.
const THIS_FILE: &str = "tests/tidy/words.rs";

/// Folders of the code, of documents, and of what users and models read.
const FOLDERS: [&str; 6] = ["src/", "docs/", "examples/", "templates/", "benches/", "tests/"];

const ROOT_PAGES: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

#[test]
fn no_banned_word_is_used() {
    let banned = Banned::parse(&repository::text(GLOSSARY));
    let files = repository::files().into_iter().filter(is_covered);
    none(
        "words that docs/glossary.md bans",
        files.flat_map(|file| findings(&file, &banned)),
    );
}

/// Whether the ban covers a file.
fn is_covered(file: &File) -> bool {
    let path = &*file.path;
    let is_left_out = [GLOSSARY, OLD_NAMES, THIS_FILE].contains(&path);
    let is_text = matches!(file.extension(), Some("rs" | "md" | "toml" | "j2"));
    let is_inside = ROOT_PAGES.contains(&path) || FOLDERS.iter().any(|folder| path.starts_with(folder));
    is_text && is_inside && !is_left_out
}

struct Banned {
    /// Words and phrases, in lower case.
    phrases: Vec<String>,
    /// Words that are fine inside the phrases beside them.
    except: Vec<(String, Vec<String>)>,
}

impl Banned {
    /// Reads the section `## Banned words`.
    fn parse(page: &str) -> Self {
        let section = page
            .split("\n## Banned words\n")
            .nth(1)
            .expect("the glossary bans words");
        let (lists, paragraphs): (Vec<&str>, Vec<&str>) =
            section.lines().partition(|line| line.starts_with("- "));
        let quoted = |line: &str| {
            line.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_lowercase)
                .collect::<Vec<_>>()
        };
        let phrases: Vec<String> = paragraphs
            .iter()
            .filter(|line| line.starts_with('`'))
            .flat_map(|line| quoted(line))
            .collect();
        let except: Vec<_> = lists.iter().filter_map(|line| exception(line)).collect();
        assert!(
            !phrases.is_empty() && except.len() == lists.len(),
            "the lists of {GLOSSARY} can be read"
        );
        Self { phrases, except }
    }
}

/// A line `- `word` (phrase, phrase)`.
fn exception(line: &str) -> Option<(String, Vec<String>)> {
    let (word, rest) = line.strip_prefix("- `")?.split_once('`')?;
    let phrases = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
    Some((word.to_owned(), phrases.split(", ").map(str::to_owned).collect()))
}

fn findings(file: &File, banned: &Banned) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let spaced = spaced(line);
        // A phrase is prose: `is_none` is a method.
        let prose = line.to_lowercase();
        let plain = banned.phrases.iter().filter(|phrase| {
            let text = if phrase.contains(' ') { &prose } else { &spaced };
            holds(text, phrase)
        });
        let except = banned.except.iter().filter(|(word, phrases)| {
            let allowed = phrases
                .iter()
                .fold(spaced.clone(), |text, phrase| text.replace(phrase.as_str(), ""));
            holds(&allowed, word)
        });
        let words: Vec<&str> = plain
            .map(String::as_str)
            .chain(except.map(|(word, _)| word.as_str()))
            .collect();
        if !words.is_empty() {
            found.push(format!("{}:{}: {}", file.path, index + 1, words.join(", ")));
        }
    }
    found
}

/// The line in lower case, with identifiers taken apart: `machine_host` and `MachineHost` are two words.
fn spaced(line: &str) -> String {
    let mut text = String::new();
    let mut before = ' ';
    for c in line.chars() {
        if c.is_uppercase() && before.is_lowercase() {
            text.push(' ');
        }
        text.extend(if c == '_' { ' ' } else { c }.to_lowercase());
        before = c;
    }
    text
}

/// Whether the text holds these words, whole.
fn holds(text: &str, phrase: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric();
    text.match_indices(phrase)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + phrase.len()..].starts_with(is_word))
}

mod tests {
    use super::{Banned, File, findings};

    const PAGE: &str = "\
# Glossary
| `fine` |

## Banned words

Some prose.

`whoever`, `in peace`,
`told`

- `machine` (virtual machine, state machine)
";

    #[track_caller]
    fn check(line: &str, words: &str) {
        let file = File {
            path: "a.rs".into(),
            text: line.into(),
        };
        let expected = if words.is_empty() {
            Vec::new()
        } else {
            vec![format!("a.rs:1: {words}")]
        };
        assert_eq!(findings(&file, &Banned::parse(PAGE)), expected, "{line}");
    }

    #[test]
    fn a_banned_word_is_found_in_prose_and_in_names() {
        check("/// Whoever ends in peace", "whoever, in peace");
        check("fn is_told()", "told");
        check("struct ToldTo;", "told");
        check("let virtual_machine = this_machine;", "machine");
    }

    #[test]
    fn other_words_are_fine() {
        check("retold, toldness, fine", "");
        check("fn put_in_peace()", "");
        check("a virtual machine, StateMachine", "");
    }
}
