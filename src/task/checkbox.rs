//! The success criteria of a task: checkboxes, the commands that verify them, and the milestones that group them.

use std::collections::{BTreeMap, BTreeSet};

use super::error::{LintRule, TaskError};
use super::markdown::{self, ListItem, MarkdownLine};
use super::name::{CheckboxId, MilestoneId};

/// One success criterion: `- [ ] M1.1 The parser reads CRLF`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkbox {
    /// The id. Checkboxes without one get `C1`, `C2`, ... in order.
    pub id: CheckboxId,
    /// The text without the id.
    pub text: String,
    /// The milestone that it belongs to.
    pub milestone: Option<MilestoneId>,
    /// Whether it is ticked in the parsed text.
    pub checked: bool,
    /// The shell commands that verify it. Empty if the task's `verify_commands` do.
    pub verify: Vec<String>,
    /// Its line, from 1.
    pub line: usize,
}

/// The criteria in the Markdown of a task file.
#[derive(Debug, Default)]
pub(super) struct Criteria {
    /// The text of the first heading.
    pub(super) title: Option<String>,
    pub(super) checkboxes: Vec<Checkbox>,
    /// The position of each checkbox's mark, in bytes of the whole text.
    pub(super) marks: Vec<usize>,
    /// The checkboxes that have a `verify:` without a command.
    pub(super) empty_verify: BTreeSet<CheckboxId>,
    pub(super) errors: Vec<TaskError>,
    /// What does not prevent a run.
    pub(super) warnings: Vec<TaskError>,
}

impl Criteria {
    /// Finds the criteria in these lines. Never fails: mistakes are in `errors`.
    pub(super) fn find<'a>(lines: impl Iterator<Item = MarkdownLine<'a>>) -> Self {
        let (lines, unclosed) = markdown::visible(lines);
        let mut scan = Scan {
            taken: ids_in(&lines),
            ..Scan::default()
        };
        for line in lines {
            scan.read(line);
        }
        let mut found = scan.found;
        let checkboxes = found.checkboxes.iter();
        let milestones = scan.milestones.iter();
        found.errors.extend(unclosed);
        found.errors.extend(duplicates(
            checkboxes.map(|checkbox| (checkbox.id.as_str(), checkbox.line)),
        ));
        found
            .errors
            .extend(duplicates(milestones.map(|(id, line)| (id.as_str(), *line))));
        found
    }
}

/// The state of a scan over the lines.
#[derive(Default)]
struct Scan {
    found: Criteria,
    /// The ids in the text. A generated id must differ from all of them.
    taken: BTreeSet<CheckboxId>,
    generated: usize,
    /// The milestones with their lines.
    milestones: Vec<(MilestoneId, usize)>,
    /// The current milestone and the level of its heading.
    milestone: Option<(usize, MilestoneId)>,
    /// The list items that the next line may be nested in, outermost first.
    open: Vec<OpenItem>,
}

struct OpenItem {
    indent: usize,
    /// The index of the checkbox, if it is one.
    checkbox: Option<usize>,
}

impl Scan {
    fn read(&mut self, line: MarkdownLine<'_>) {
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
        if let Some(id) = milestone(text) {
            self.milestone = Some((level, id.clone()));
            self.milestones.push((id, line));
        } else if self
            .milestone
            .as_ref()
            .is_some_and(|(of_milestone, _)| level <= *of_milestone)
        {
            self.milestone = None;
        }
    }

    fn item(&mut self, item: ListItem<'_>, line: MarkdownLine<'_>) {
        while self.open.last().is_some_and(|open| open.indent >= item.indent) {
            self.open.pop();
        }
        let mut checkbox = None;
        if let Some((reason, fix)) = near_miss(item, self.open.is_empty()) {
            let error = TaskError::new(line.number, LintRule::Checkboxes, reason, fix);
            self.found.errors.push(error);
        } else if let Some(checkbox_line) = CheckboxLine::parse(item.content) {
            checkbox = Some(self.found.checkboxes.len());
            self.checkbox(checkbox_line, line.number);
            self.found.marks.push(line.start + item.start + MARK);
        } else if let Some(verify) = VerifyLine::parse(item.content) {
            self.verify(verify, line.number);
        } else if is_misspelt_verify(item.content) {
            self.misspelt_verify(line.number);
        }
        self.open.push(OpenItem {
            indent: item.indent,
            checkbox,
        });
    }

    fn checkbox(&mut self, parsed: CheckboxLine<'_>, line: usize) {
        let id = parsed.id.unwrap_or_else(|| self.generate_id());
        self.found.checkboxes.push(Checkbox {
            id,
            text: parsed.text.to_owned(),
            milestone: self.milestone.as_ref().map(|(_, id)| id.clone()),
            checked: parsed.checked,
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

    fn misspelt_verify(&mut self, line: usize) {
        self.found.errors.push(TaskError::new(
            line,
            LintRule::Verification,
            "this is not read as `verify:`, which is written in lower case and without a space",
            "write it like - verify: `cargo test`",
        ));
        if let Some(of) = self.open.iter().rev().find_map(|item| item.checkbox) {
            let id = self.found.checkboxes[of].id.clone();
            self.found.empty_verify.insert(id);
        }
    }

    fn verify(&mut self, VerifyLine { commands, ignored }: VerifyLine, line: usize) {
        let Some(of) = self.open.iter().rev().find_map(|item| item.checkbox) else {
            self.found.errors.push(TaskError::new(
                line,
                LintRule::Verification,
                "this `verify:` belongs to no checkbox",
                "indent it under the checkbox that it verifies, or start the line with another word",
            ));
            return;
        };
        let checkbox = &mut self.found.checkboxes[of];
        if commands.is_empty() {
            self.found.errors.push(TaskError::new(
                line,
                LintRule::Verification,
                format!(
                    "this `verify:` of {} contains no command in backticks",
                    checkbox.id
                ),
                "write it like - verify: `cargo test`",
            ));
            self.found.empty_verify.insert(checkbox.id.clone());
        }
        checkbox.verify.extend(commands);
        self.found
            .warnings
            .extend(ignored.iter().map(|code| ignored_code(code, line)));
    }
}

/// The position of the mark in `[ ]`.
const MARK: usize = 1;

/// The parsed line of a checkbox.
struct CheckboxLine<'a> {
    checked: bool,
    id: Option<CheckboxId>,
    text: &'a str,
}

impl<'a> CheckboxLine<'a> {
    fn parse(content: &'a str) -> Option<Self> {
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

/// Why an item that looks like a checkbox does not count as one, and how to write it.
fn near_miss(item: ListItem<'_>, at_top: bool) -> Option<(&'static str, &'static str)> {
    const FIX: &str =
        "write an open checkbox as - [ ] and a ticked one as - [x]; put an example in a code block";
    if at_top && item.indent >= CODE_INDENT && CheckboxLine::parse(item.content).is_some() {
        let reason = "this checkbox is indented so far that Markdown shows it as code";
        return Some((
            reason,
            "indent it by at most three columns; put an example in a code block",
        ));
    }
    let (inner, after) = item.content.strip_prefix('[')?.split_once(']')?;
    let mut mark = inner.trim().chars();
    // A number is a reference, and a link has no blank after the bracket.
    let is_mark = matches!((mark.next(), mark.next()), (None, _) | (Some('a'..='z' | 'A'..='Z' | '\u{80}'.. | '-' | '*' | '~' | '/' | '+'), None));
    let is_right = matches!(inner, " " | "x" | "X");
    let is_text = after.is_empty() || after.starts_with([' ', '\t']);
    (is_mark && !is_right && is_text).then_some(("this is not read as a checkbox", FIX))
}

/// Markdown shows a line with this indentation as code, unless it is part of a list.
const CODE_INDENT: usize = 4;

fn is_misspelt_verify(content: &str) -> bool {
    let word = content.split(':').next().unwrap_or_default();
    word.len() < content.len() && word.trim_end().eq_ignore_ascii_case("verify")
}

fn ids_in(lines: &[MarkdownLine<'_>]) -> BTreeSet<CheckboxId> {
    let items = lines.iter().filter_map(|line| markdown::list_item(line.text));
    items
        .filter_map(|item| CheckboxLine::parse(item.content)?.id)
        .collect()
}

/// Splits the id from the text. Also accepts `**M1.1**` and `M1.1:`.
fn split_id(text: &str) -> (Option<CheckboxId>, &str) {
    let (word, rest) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    match CheckboxId::parse(word.trim_matches(['*', '_', '`', ':'])) {
        Ok(id) => (Some(id), rest.trim_start()),
        Err(_) => (None, text),
    }
}

/// The id in `Milestone M1 The parser` or `Milestone M1: The parser`.
fn milestone(heading: &str) -> Option<MilestoneId> {
    let word = heading.strip_prefix("Milestone ")?.split_whitespace().next()?;
    MilestoneId::parse(word.trim_end_matches(':')).ok()
}

/// The parsed line ``verify: `cargo test` and `cargo clippy` ``.
#[derive(Default)]
struct VerifyLine {
    /// The code spans up to the first other word after one.
    commands: Vec<String>,
    /// The code spans after that word. They belong to an explanation and are not run.
    ignored: Vec<String>,
}

impl VerifyLine {
    fn parse(content: &str) -> Option<Self> {
        let text = content.strip_prefix("verify:")?;
        let mut line = Self::default();
        let (mut end, mut is_explanation) = (0, false);
        for span in markdown::code_spans(text) {
            let between = &text[end..span.range.start];
            end = span.range.end;
            is_explanation |= !line.commands.is_empty() && !is_separator(between);
            let spans = if is_explanation {
                &mut line.ignored
            } else {
                &mut line.commands
            };
            if !span.code.is_empty() {
                spans.push(span.code.to_owned());
            }
        }
        Some(line)
    }
}

/// The warning about code after the words of an explanation.
fn ignored_code(code: &str, line: usize) -> TaskError {
    let reason =
        format!("`{code}` is not run: after other words, code in a `verify:` is text, not a command");
    let fix = format!(
        "to run it, add a line - verify: `{code}`, or leave only `and`, `then` or a comma between the commands; \
         to keep it as text, remove its backticks"
    );
    TaskError::new(line, LintRule::IgnoredCode, reason, fix).into_warning()
}

/// Whether this text between two code spans says that both are commands.
fn is_separator(text: &str) -> bool {
    let mut words = text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '&' | '+'));
    words.all(|word| matches!(word, "" | "and" | "then"))
}

fn duplicates<'a>(ids: impl Iterator<Item = (&'a str, usize)>) -> Vec<TaskError> {
    let mut first_lines = BTreeMap::new();
    let mut errors = Vec::new();
    for (id, line) in ids {
        let first = *first_lines.entry(id).or_insert(line);
        if first != line {
            errors.push(TaskError::new(
                line,
                LintRule::UniqueIds,
                format!("duplicate id `{id}` (first used on line {first})"),
                format!("change one of the two ids `{id}`"),
            ));
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
            .chain(&found.warnings)
            .map(|error| format!("line {}: {error}", error.line.unwrap()));
        boxes.chain(errors).collect()
    }

    #[rstest]
    #[case::dash("- [ ] M1.1 a", "M1.1 a")]
    #[case::star("* [x] M1.1 a", "M1.1 a")]
    #[case::plus("+ [X] M1.1 a", "M1.1 a")]
    #[case::numbered("1. [ ] M1.1 a", "M1.1 a")]
    #[case::tabs("-\t[ ]\tM1.1\ta", "M1.1 a")]
    #[case::indented("   - [ ] M1.1 a", "M1.1 a")]
    #[case::in_details("<details>\n\n- [ ] M1.1 a\n\n</details>", "M1.1 a")]
    #[case::colon("- [ ] M1.1: a", "M1.1 a")]
    #[case::bold("- [ ] **M1.1** a", "M1.1 a")]
    #[case::no_id("- [ ] Add a test", "C1 Add a test")]
    #[case::only_an_id("- [ ] M1.1", "M1.1 ")]
    #[case::trailing_blanks("- [ ] M1.1 a \t", "M1.1 a")]
    fn a_checkbox_may_be_written(#[case] line: &str, #[case] expected: &str) {
        assert_eq!(found_in(line), [expected]);
    }

    #[rstest]
    #[case::no_blank("- [] M1 a")]
    #[case::another_letter("- [v] M1 a")]
    #[case::a_sign("- [\u{2713}] M1 a")]
    #[case::a_dash("- [-] M1 a")]
    #[case::two_blanks("- [  ] M1 a")]
    #[case::blanks_around("* [ x ] M1 a")]
    fn a_near_miss_is_not_passed_over(#[case] line: &str) {
        assert_eq!(found_in(line), ["line 1: this is not read as a checkbox"]);
    }

    #[rstest]
    #[case::upper("- [ ] M1 a\n  - Verify: `ls`")]
    #[case::a_blank("- [ ] M1 a\n  - verify : `ls`")]
    fn a_misspelt_verify_is_not_passed_over(#[case] text: &str) {
        let found = found_in(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[1].starts_with("line 2: this is not read as `verify:`"),
            "{found:?}"
        );
    }

    #[test]
    fn a_checkbox_in_indented_code_is_not_passed_over() {
        let found = found_in("An example:\n\n    - [ ] M1 a\n");
        assert_eq!(
            found,
            ["line 3: this checkbox is indented so far that Markdown shows it as code"]
        );
        assert_eq!(found_in("- [ ] M1 a\n    - [ ] M2 b"), ["M1 a", "M2 b"]);
    }

    #[rstest]
    #[case::link("- [x](https://example.com)")]
    #[case::no_bullet("[ ] a")]
    #[case::no_blank("-[ ] a")]
    #[case::no_text("- [ ]")]
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
    fn a_generated_id_is_the_next_unused_one() {
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
    }

    #[rstest]
    #[case::one("- [ ] M1 a\n  - verify: `b c`", &["M1 a <- b c"])]
    #[case::prose_after("- [ ] M1 a\n  - verify: `b c` passes, and prints `ok`", &["M1 a <- b c", "line 2: `ok` is not run: after other words, code in a `verify:` is text, not a command"])]
    #[case::prose_in_front("- [ ] M1 a\n  - verify: run `b`, then `c`; both exit with `0`", &["M1 a <- b <- c", "line 2: `0` is not run: after other words, code in a `verify:` is text, not a command"])]
    #[case::joined_prose("- [ ] M1 a\n  - verify: `b` runs `` and `c`", &["M1 a <- b", "line 2: `c` is not run: after other words, code in a `verify:` is text, not a command"])]
    #[case::several("- [ ] M1 a\n  - verify: `b`\n\n  * verify: `c` and ``d `e` ``", &["M1 a <- b <- c <- d `e`"])]
    #[case::by_tab("- [ ] M1 a\n\t- verify: `b`", &["M1 a <- b"])]
    #[case::deeper("- [ ] M1 a\n  - how\n    - verify: `b`", &["M1 a <- b"])]
    #[case::of_the_inner("- [ ] M1 a\n  - [ ] M2 b\n    - verify: `c`\n  - verify: `d`", &["M1 a <- d", "M2 b <- c"])]
    #[case::empty("- [ ] M1 a\n  - verify: ``", &["M1 a", "line 2: this `verify:` of M1 contains no command in backticks"])]
    #[case::blank("- [ ] M1 a\n  - verify: ` `", &["M1 a", "line 2: this `verify:` of M1 contains no command in backticks"])]
    #[case::bare("- [ ] M1 a\n  - verify: b", &["M1 a", "line 2: this `verify:` of M1 contains no command in backticks"])]
    #[case::beside("- [ ] M1 a\n- verify: `b`", &["M1 a", "line 2: this `verify:` belongs to no checkbox"])]
    #[case::after_a_heading("- [ ] M1 a\n# b\n  - verify: `b`", &["M1 a", "line 3: this `verify:` belongs to no checkbox"])]
    fn a_verify_line_belongs_to_the_checkbox_it_is_under(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(found_in(text), expected);
    }

    #[rstest]
    #[case::checkbox("- [ ] M1 a\n- [x] M1 b", "line 2: duplicate id `M1` (first used on line 1)")]
    #[case::milestone(
        "# Milestone M1\n\n# Milestone M1",
        "line 3: duplicate id `M1` (first used on line 1)"
    )]
    #[case::fence(
        "a\n```sh\n- [ ] M1 a",
        "line 2: this code block is never closed, so the checkboxes after it are ignored"
    )]
    #[case::comment(
        "a <!-- b\n- [ ] M1 a",
        "line 1: this comment is never closed, so the checkboxes after it are ignored"
    )]
    fn a_mistake_is_reported_with_its_line(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(found_in(text).last().map(String::as_str), Some(expected));
    }
}
