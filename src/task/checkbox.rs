//! The success criteria of a task: checkboxes, what verifies them, and the milestones that group them.

use std::collections::{BTreeMap, BTreeSet};

use super::error::TaskError;
use super::markdown::{self, Line, ListItem};
use super::name::{CheckboxId, MilestoneId};

/// One criterion of success: `- [ ] M1.1 The parser reads CRLF`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkbox {
    /// Its id; `C1`, `C2`, ... in order for those that are written without one.
    pub id: CheckboxId,
    /// What is to hold, without the id.
    pub text: String,
    /// The milestone it stands under.
    pub milestone: Option<MilestoneId>,
    /// Whether it is ticked in the text that was read.
    pub checked: bool,
    /// The shell lines that verify it; none when the task's `verify_commands` do.
    pub verify: Vec<String>,
    /// The line it stands on, from 1.
    pub line: usize,
}

/// A group of checkboxes: those under `### Milestone M1 The parser`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Milestone {
    /// Its id.
    pub id: MilestoneId,
    /// What it is called, without the id.
    pub title: String,
    /// The line it stands on, from 1.
    pub line: usize,
}

/// What is found in the Markdown of a task file.
#[derive(Debug, Default)]
pub(super) struct Criteria {
    /// The text of the first heading.
    pub(super) title: Option<String>,
    pub(super) milestones: Vec<Milestone>,
    pub(super) checkboxes: Vec<Checkbox>,
    /// Where the mark of each checkbox stands, in bytes of the whole text.
    pub(super) marks: Vec<usize>,
    pub(super) errors: Vec<TaskError>,
}

impl Criteria {
    /// Finds everything in these lines. Never fails: what is wrong is among the errors.
    pub(super) fn find<'a>(lines: impl Iterator<Item = Line<'a>>) -> Self {
        let (lines, unclosed) = markdown::visible(lines);
        let mut scan = Scan {
            taken: ids_in(&lines),
            ..Scan::default()
        };
        for line in lines {
            scan.read(line);
        }
        let mut found = scan.found;
        let ids = found
            .checkboxes
            .iter()
            .map(|found| (found.id.as_str(), found.line));
        let duplicate_boxes = duplicates(ids);
        let ids = found
            .milestones
            .iter()
            .map(|found| (found.id.as_str(), found.line));
        let duplicate_milestones = duplicates(ids);
        found.errors.extend(unclosed);
        found.errors.extend(duplicate_boxes);
        found.errors.extend(duplicate_milestones);
        found
    }
}

/// What is known while the lines go by.
#[derive(Default)]
struct Scan {
    found: Criteria,
    /// The ids people gave; a generated one must be none of them.
    taken: BTreeSet<CheckboxId>,
    generated: usize,
    /// The milestone the lines are under, and the level of its heading.
    milestone: Option<(usize, MilestoneId)>,
    /// The list items the next line may be nested in, outermost first.
    open: Vec<OpenItem>,
}

struct OpenItem {
    indent: usize,
    /// Which checkbox it is, if it is one.
    checkbox: Option<usize>,
}

impl Scan {
    fn read(&mut self, line: Line<'_>) {
        if let Some((level, text)) = markdown::heading(line.text) {
            self.heading(level, text, line.number);
        } else if let Some(item) = markdown::list_item(line.text) {
            self.item(item, line);
        }
    }

    fn heading(&mut self, level: usize, text: &str, line: usize) {
        self.open.clear();
        if self.found.title.is_none() && !text.is_empty() {
            self.found.title = Some(text.to_owned());
        }
        if let Some((id, title)) = milestone(text) {
            self.milestone = Some((level, id.clone()));
            self.found.milestones.push(Milestone {
                id,
                title: title.to_owned(),
                line,
            });
        } else if self
            .milestone
            .as_ref()
            .is_some_and(|(of_milestone, _)| level <= *of_milestone)
        {
            self.milestone = None;
        }
    }

    fn item(&mut self, item: ListItem<'_>, line: Line<'_>) {
        while self.open.last().is_some_and(|open| open.indent >= item.indent) {
            self.open.pop();
        }
        let mut checkbox = None;
        if let Some(written) = Written::read(item.content) {
            checkbox = Some(self.found.checkboxes.len());
            self.checkbox(&written, line.number);
            self.found.marks.push(line.start + item.start + MARK);
        } else if let Some(commands) = verify(item.content) {
            self.verify(commands, line.number);
        }
        self.open.push(OpenItem {
            indent: item.indent,
            checkbox,
        });
    }

    fn checkbox(&mut self, written: &Written<'_>, line: usize) {
        let id = written.id.clone().unwrap_or_else(|| self.generate_id());
        self.found.checkboxes.push(Checkbox {
            id,
            text: written.text.to_owned(),
            milestone: self.milestone.as_ref().map(|(_, id)| id.clone()),
            checked: written.checked,
            verify: Vec::new(),
            line,
        });
    }

    fn generate_id(&mut self) -> CheckboxId {
        loop {
            self.generated += 1;
            let id = CheckboxId::generated(self.generated);
            if !self.taken.contains(&id) {
                return id;
            }
        }
    }

    fn verify(&mut self, commands: Vec<String>, line: usize) {
        let Some(of) = self.open.iter().rev().find_map(|item| item.checkbox) else {
            self.found.errors.push(TaskError::StrayVerify { line });
            return;
        };
        let checkbox = &mut self.found.checkboxes[of];
        if commands.is_empty() {
            self.found.errors.push(TaskError::EmptyVerify {
                line,
                id: checkbox.id.clone(),
            });
        }
        checkbox.verify.extend(commands);
    }
}

/// Where the mark stands in `[ ]`.
const MARK: usize = 1;

/// A checkbox as its line has it.
struct Written<'a> {
    checked: bool,
    id: Option<CheckboxId>,
    text: &'a str,
}

impl<'a> Written<'a> {
    fn read(content: &'a str) -> Option<Self> {
        let (mark, after) = content.split_at_checked("[ ]".len())?;
        let checked = match mark {
            "[ ]" => false,
            "[x]" | "[X]" => true,
            _ => return None,
        };
        let text = after.trim();
        if text.is_empty() || !after.starts_with([' ', '\t']) {
            return None;
        }
        let (id, text) = split_id(text);
        Some(Self { checked, id, text })
    }
}

fn ids_in(lines: &[Line<'_>]) -> BTreeSet<CheckboxId> {
    let items = lines.iter().filter_map(|line| markdown::list_item(line.text));
    items.filter_map(|item| Written::read(item.content)?.id).collect()
}

/// Parts the id from the text. People also write `**M1.1**` and `M1.1:`.
fn split_id(text: &str) -> (Option<CheckboxId>, &str) {
    let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    match CheckboxId::parse(word.trim_matches(['*', '_', '`', ':'])) {
        Ok(id) => (Some(id), rest.trim_start()),
        Err(_) => (None, text),
    }
}

/// Reads `Milestone M1 The parser`, also written `Milestone M1: The parser`.
fn milestone(heading: &str) -> Option<(MilestoneId, &str)> {
    let after = heading.strip_prefix("Milestone ")?.trim_start();
    let (word, rest) = after.split_once([' ', '\t']).unwrap_or((after, ""));
    let id = MilestoneId::parse(word.trim_end_matches(':')).ok()?;
    Some((id, rest.trim_start_matches(['-', ':', ' ', '\t'])))
}

/// Reads ``verify: `cargo test` ``: each piece between backticks is a command.
fn verify(content: &str) -> Option<Vec<String>> {
    let commands = content.strip_prefix("verify:")?;
    let spans = markdown::code_spans(commands).into_iter();
    Some(
        spans
            .filter(|span| !span.code.is_empty())
            .map(|span| span.code.to_owned())
            .collect(),
    )
}

fn duplicates<'a>(ids: impl Iterator<Item = (&'a str, usize)>) -> Vec<TaskError> {
    let mut first_lines = BTreeMap::new();
    let mut errors = Vec::new();
    for (id, line) in ids {
        let first = *first_lines.entry(id).or_insert(line);
        if first != line {
            errors.push(TaskError::DuplicateId {
                line,
                id: id.to_owned(),
                first,
            });
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Each checkbox as `id(milestone) text <- commands`, each error as its line.
    fn found_in(text: &str) -> Vec<String> {
        let found = Criteria::find(markdown::lines(text));
        let boxes = found.checkboxes.iter().map(|checkbox| {
            let milestone = checkbox
                .milestone
                .as_ref()
                .map(|id| format!("({id})"))
                .unwrap_or_default();
            let commands = [vec![checkbox.text.clone()], checkbox.verify.clone()]
                .concat()
                .join(" <- ");
            format!("{}{milestone} {commands}", checkbox.id)
        });
        let errors = found
            .errors
            .iter()
            .map(|error| format!("line {}: {error}", error.line()));
        boxes.chain(errors).collect()
    }

    #[rstest]
    #[case::dash("- [ ] M1.1 a", "M1.1 a")]
    #[case::star("* [x] M1.1 a", "M1.1 a")]
    #[case::plus("+ [X] M1.1 a", "M1.1 a")]
    #[case::numbered("1. [ ] M1.1 a", "M1.1 a")]
    #[case::tabs("\t-\t[ ]\tM1.1\ta", "M1.1 a")]
    #[case::indented("      - [ ] M1.1 a", "M1.1 a")]
    #[case::colon("- [ ] M1.1: a", "M1.1 a")]
    #[case::bold("- [ ] **M1.1** a", "M1.1 a")]
    #[case::no_id("- [ ] Add a test", "C1 Add a test")]
    #[case::only_an_id("- [ ] M1.1", "M1.1 ")]
    #[case::trailing_blanks("- [ ] M1.1 a \t", "M1.1 a")]
    fn a_checkbox_may_be_written(#[case] line: &str, #[case] expected: &str) {
        assert_eq!(found_in(line), [expected]);
    }

    #[rstest]
    #[case::link("- [x](https://example.com)")]
    #[case::no_bullet("[ ] a")]
    #[case::no_blank("-[ ] a")]
    #[case::no_text("- [ ]")]
    #[case::other_mark("- [-] a")]
    #[case::wide_mark("- [é] a")]
    #[case::quoted("> - [ ] a")]
    #[case::fenced("```\n- [ ] a\n```")]
    #[case::fenced_with_tildes("~~~~ md\n```\n- [ ] a\n~~~\n- [ ] b\n~~~~")]
    #[case::fenced_in_a_list("- ```\n  - [ ] a\n  ```")]
    #[case::comment("<!-- - [ ] a\n- [ ] b\n-->")]
    #[case::comment_after_comment("<!-- a --> <!--\n- [ ] b\n--> <!--\n- [ ] c\n-->")]
    #[case::end_of_comment("<!--\n--> - [ ] a")]
    fn no_checkbox_is(#[case] text: &str) {
        assert_eq!(found_in(text), Vec::<String>::new());
    }

    #[rstest]
    #[case::after_a_fence("```\na\n```\n- [ ] M1 b", "M1 b")]
    #[case::after_inline_code("```a```\n- [ ] M1 b", "M1 b")]
    #[case::after_a_comment("<!-- a -->\n- [ ] M1 b", "M1 b")]
    #[case::after_an_empty_comment("<!-->\n- [ ] M1 b", "M1 b")]
    #[case::comment_in_code("a ``<!-- ` `` b\n- [ ] M1 b", "M1 b")]
    #[case::before_a_comment("- [ ] M1 b <!-- a\n- [ ] M2 c\n-->", "M1 b <!-- a")]
    fn a_checkbox_counts(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(found_in(text), [expected]);
    }

    #[test]
    fn a_generated_id_is_the_next_that_nobody_uses() {
        assert_eq!(
            found_in("- [ ] a\n- [ ] C2 b\n- [ ] c\n- [ ] M1 d\n- [ ] e"),
            ["C1 a", "C2 b", "C3 c", "M1 d", "C4 e"]
        );
    }

    #[test]
    fn a_milestone_reaches_to_the_next_heading_of_its_level() {
        let text = "## Plan\n- [ ] A1 a\n### Milestone M1: Parser\n- [ ] A2 b\n#### Detail\n- [ ] A3 c\n\
            ### Milestone M2\n- [ ] A4 d\n## Notes\n- [ ] A5 e";
        assert_eq!(
            found_in(text),
            ["A1 a", "A2(M1) b", "A3(M1) c", "A4(M2) d", "A5 e"]
        );
        let titles: Vec<_> = Criteria::find(markdown::lines(text))
            .milestones
            .into_iter()
            .map(|found| found.title)
            .collect();
        assert_eq!(titles, ["Parser", ""]);
    }

    #[rstest]
    #[case::one("- [ ] M1 a\n  - verify: `b c`", &["M1 a <- b c"])]
    #[case::several("- [ ] M1 a\n  - verify: `b`\n\n  * verify: `c` and ``d `e` ``", &["M1 a <- b <- c <- d `e`"])]
    #[case::by_tab("- [ ] M1 a\n\t- verify: `b`", &["M1 a <- b"])]
    #[case::deeper("- [ ] M1 a\n  - how\n    - verify: `b`", &["M1 a <- b"])]
    #[case::of_the_inner("- [ ] M1 a\n  - [ ] M2 b\n    - verify: `c`\n  - verify: `d`", &["M1 a <- d", "M2 b <- c"])]
    #[case::empty("- [ ] M1 a\n  - verify: ``", &["M1 a", "line 2: this `verify:` of M1 holds no command between backticks"])]
    #[case::blank("- [ ] M1 a\n  - verify: ` `", &["M1 a", "line 2: this `verify:` of M1 holds no command between backticks"])]
    #[case::bare("- [ ] M1 a\n  - verify: b", &["M1 a", "line 2: this `verify:` of M1 holds no command between backticks"])]
    #[case::beside("- [ ] M1 a\n- verify: `b`", &["M1 a", "line 2: this `verify:` is under no checkbox"])]
    #[case::after_a_heading("- [ ] M1 a\n# b\n  - verify: `b`", &["M1 a", "line 3: this `verify:` is under no checkbox"])]
    fn a_verify_line_belongs_to_the_checkbox_it_is_under(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(found_in(text), expected);
    }

    #[rstest]
    #[case::checkbox(
        "- [ ] M1 a\n- [x] M1 b",
        "line 2: the id `M1` is used again; it was used on line 1 already"
    )]
    #[case::milestone(
        "# Milestone M1\n\n# Milestone M1",
        "line 3: the id `M1` is used again; it was used on line 1 already"
    )]
    #[case::fence(
        "a\n```sh\n- [ ] M1 a",
        "line 2: this code block is never closed, so no checkbox after it counts"
    )]
    #[case::comment(
        "a <!-- b\n- [ ] M1 a",
        "line 1: this comment is never closed, so no checkbox after it counts"
    )]
    fn a_mistake_is_told_with_its_line(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(found_in(text).last().map(String::as_str), Some(expected));
    }
}
