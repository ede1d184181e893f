//! The body of a pull request within its limit: what matters least is left out first, in whole rows.

use std::collections::BTreeMap;

use minijinja::value::Value;

use super::inert_markdown::open_blocks;
use super::pull_request::{PullRequestFacts, PullRequestTemplateError};
use super::pull_request_template::{PullRequestTemplate, TemplateUse, left_out};
use crate::text::{counted, visible};

/// The most bytes of a body. With the mark that a forge adds it stays below 60,000; GitHub refuses more than 65,536
/// characters.
pub(super) const MAX_BODY_BYTES: usize = 59_500;

/// The default template of the body.
const BODY_TEMPLATE: &str = include_str!("../../templates/pr_body.j2");

/// The most bytes of one value in the default body, before it is escaped. What cannot be left out fits in the body then.
const MAX_VALUE_BYTES: usize = 300;

/// How many rows a search for the number that fits begins with.
const FIRST_ROWS: usize = 64;

/// A list of the body, and how much of it is shown before the next one gets its turn.
struct BodyShare {
    list: &'static str,
    rows: usize,
    /// The size that the whole body may have then.
    bytes: usize,
}

/// What matters most first. A reviewer has to see the first flags and open checkboxes, however much evidence there is.
const SHARES: [BodyShare; 14] = [
    share("flags", 30, 20_000),
    share("open", 30, 25_000),
    share("evidence_shares", 10, 30_000),
    share("evidence", usize::MAX, MAX_BODY_BYTES),
    share("flags", usize::MAX, MAX_BODY_BYTES),
    share("open", usize::MAX, MAX_BODY_BYTES),
    share("costs", usize::MAX, MAX_BODY_BYTES),
    share("blocked", usize::MAX, MAX_BODY_BYTES),
    share("agents", usize::MAX, MAX_BODY_BYTES),
    share("summary", usize::MAX, MAX_BODY_BYTES),
    share("history", usize::MAX, MAX_BODY_BYTES),
    share("interventions", usize::MAX, MAX_BODY_BYTES),
    share("files", usize::MAX, MAX_BODY_BYTES),
    share("agent_settings", usize::MAX, MAX_BODY_BYTES),
];

const fn share(list: &'static str, rows: usize, bytes: usize) -> BodyShare {
    BodyShare { list, rows, bytes }
}

/// Renders the default body.
pub(super) fn default_body(facts: &PullRequestFacts) -> Result<String, PullRequestTemplateError> {
    let longest = MAX_VALUE_BYTES;
    let template = PullRequestTemplate::new("pr_body.j2", BODY_TEMPLATE, TemplateUse::Body { longest });
    let lengths = lengths(facts);
    let facts = Value::from_serialize(facts);
    let render = |kept: &BTreeMap<&str, usize>| -> Result<String, PullRequestTemplateError> {
        let body = template.render(minijinja::context! { kept => kept, ..facts.clone() })?;
        Ok(visible(&body).into_owned())
    };
    let whole = render(&lengths)?;
    if whole.len() <= MAX_BODY_BYTES {
        return Ok(whole);
    }
    let mut kept: BTreeMap<&str, usize> = lengths.keys().map(|list| (*list, 0)).collect();
    for BodyShare { list, rows, bytes } in SHARES {
        let most = lengths[list].min(rows);
        let rows = most_that_fits(kept[list], most, |rows| {
            kept.insert(list, rows);
            Ok(render(&kept)?.len() <= bytes)
        })?;
        kept.insert(list, rows);
        if rows < most && bytes == MAX_BODY_BYTES {
            break;
        }
    }
    render(&kept)
}

/// Renders the template of a task. A body that is too long ends at a line, with every block closed.
pub(super) fn custom_body(
    name: &str,
    source: &str,
    facts: &PullRequestFacts,
) -> Result<String, PullRequestTemplateError> {
    let longest = usize::MAX;
    let body = PullRequestTemplate::new(name, source, TemplateUse::Body { longest }).render(facts)?;
    let body = visible(&body);
    if body.len() <= MAX_BODY_BYTES {
        return Ok(body.into_owned());
    }
    let cut = |lines| cut_to_lines(&body, lines, &facts.run);
    let lines = most_that_fits(0, body.lines().count(), |lines| {
        Ok(cut(lines).len() <= MAX_BODY_BYTES)
    })?;
    Ok(cut(lines))
}

/// The first lines of a body, what closes their blocks, and where the rest is.
fn cut_to_lines(body: &str, lines: usize, run: &str) -> String {
    let all = body.lines().count();
    let mut kept: String = body.lines().take(lines).flat_map(|line| [line, "\n"]).collect();
    let (fence, details) = open_blocks(&kept);
    if let Some(fence) = fence {
        kept.push_str(&fence);
        kept.push('\n');
    }
    kept.push_str(&"\n</details>\n".repeat(details));
    let what = counted(all - lines, "more line");
    format!("{kept}\n{}\n", left_out(&what, run))
}

/// How many rows each list has.
fn lengths(facts: &PullRequestFacts) -> BTreeMap<&'static str, usize> {
    let open = facts.checkboxes.iter().filter(|checkbox| !checkbox.checked);
    BTreeMap::from([
        ("agent_settings", facts.agent_settings.len()),
        ("agents", facts.agents.len()),
        ("blocked", facts.network.blocked.len()),
        ("costs", facts.costs.len()),
        ("evidence", facts.evidence.len()),
        ("evidence_shares", facts.evidence_shares.len()),
        ("files", facts.files.len()),
        ("flags", facts.flags.len()),
        ("history", facts.history.len()),
        ("interventions", facts.interventions.len()),
        ("open", open.count()),
        ("summary", facts.summary.chars().count()),
    ])
}

/// The most rows, from `least` to `most`, that fit. Few of the tries are much too large: rendering them takes time.
fn most_that_fits<E>(
    least: usize,
    most: usize,
    mut fits: impl FnMut(usize) -> Result<bool, E>,
) -> Result<usize, E> {
    let (mut fitting, mut step) = (least, FIRST_ROWS);
    let mut too_many = most + 1;
    while fitting < most {
        let next = most.min(fitting + step);
        if !fits(next)? {
            too_many = next;
            break;
        }
        fitting = next;
        step *= 2;
    }
    while fitting + 1 < too_many {
        let middle = fitting.midpoint(too_many);
        if fits(middle)? {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::pull_request::tests::facts;
    use super::super::pull_request::{
        AgentFact, BlockedHostFact, CheckboxCostFact, CheckboxFact, EvidenceFact, FileFact, FlagFact,
        ImageFact, InterventionFact, IterationFact, NetworkFact,
    };
    use super::*;

    const HEADINGS: [&str; 4] = [
        "## Look at these first",
        "## Evidence",
        "## Cost",
        "## What is left",
    ];

    /// What is wrong with a body, by the rules of Markdown that hostile text could break.
    fn wrong(body: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        if body.len() > MAX_BODY_BYTES {
            wrong.push(format!("{} bytes", body.len()));
        }
        let (mut fence, mut details, mut columns) = (None, 0, 0);
        for line in body.lines() {
            let ticks = line.len() - line.trim_start_matches('`').len();
            if let Some(open) = fence {
                if ticks >= open && line.len() == ticks {
                    fence = None;
                }
                continue;
            }
            if ticks >= 3 && !line[ticks..].contains('`') {
                fence = Some(ticks);
                continue;
            }
            match line {
                "<details>" => details += 1,
                "</details>" => details -= 1,
                _ if line.starts_with("<summary>") && line.ends_with("</summary>") => {}
                _ => wrong.extend(effects(line)),
            }
            let title = line.trim_start_matches('#');
            if title.len() < line.len() && title.starts_with([' ', '\t']) && !HEADINGS.contains(&line) {
                wrong.push(format!("a heading: {line}"));
            }
            let found = if line.starts_with('|') { cells(line) } else { 0 };
            if columns != 0 && found != 0 && found != columns {
                wrong.push(format!("{found} columns, not {columns}: {line}"));
            }
            columns = found;
            if !(0..=1).contains(&details) {
                wrong.push(format!("{details} blocks of details are open: {line}"));
            }
        }
        if fence.is_some() || details != 0 {
            wrong.push(format!("open at the end: {fence:?}, {details}"));
        }
        wrong
    }

    /// The number of cells of a row: a `|` after a backslash is content.
    fn cells(line: &str) -> usize {
        let escaped = line.matches("\\|").count();
        line.matches('|').count() - escaped - 1
    }

    /// What a forge would follow outside of code spans.
    fn effects(line: &str) -> Vec<String> {
        let mut text = String::new();
        let mut rest = line;
        while let Some(start) = rest.find('`') {
            text.push_str(&rest[..start]);
            let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
            let slashes = text.len() - text.trim_end_matches('\\').len();
            let is_escaped = slashes % 2 == 1;
            let after = &rest[start + ticks..];
            if is_escaped {
                text.push('`');
                rest = &rest[start + 1..];
                continue;
            }
            let runs = after.match_indices('`').filter(|(at, _)| {
                !after[..*at].ends_with('`')
                    && after[*at..].len() - after[*at..].trim_start_matches('`').len() == ticks
            });
            match runs.map(|(at, _)| at).next() {
                Some(end) => rest = &after[end + ticks..],
                None => return vec![format!("an open code span: {line}")],
            }
            text.push('\u{b7}');
        }
        text.push_str(rest);
        let text = text.replace("&#8203;", "\u{200b}").replace("&#124;", "\u{a6}");
        let followed = |sign: &str| {
            let mut parts = text.split(sign).skip(1);
            parts.any(|part| part.starts_with(|c: char| c.is_ascii_alphanumeric()))
        };
        let lower = text.to_lowercase();
        let found = [
            ("HTML", text.contains(['<', '>'])),
            ("a name", followed("@")),
            ("a number", followed("#")),
            ("a URL", text.contains("://") || lower.contains("www.")),
            (
                "GH-1",
                lower
                    .split("gh-")
                    .skip(1)
                    .any(|part| part.starts_with(|c: char| c.is_ascii_digit())),
            ),
            (
                "a link",
                text.replace("\\[", "").replace("- [ ]", "").contains('['),
            ),
        ];
        let found = found.into_iter().filter(|(_, is_there)| *is_there);
        found.map(|(what, _)| format!("{what}: {line}")).collect()
    }

    fn hostile() -> impl Strategy<Value = String> {
        let pieces = [
            "|",
            "\n",
            "`",
            "``",
            "```",
            "<!--",
            "-->",
            "<details>",
            "</details>",
            "<b>",
            "@octo-cat",
            "#12",
            "Fixes #1",
            "https://forge.example/o/r/issues/1",
            "GH-3",
            "\\",
            "*",
            "_",
            "[x](y)",
            "![i](u)",
            "~~~",
            "\r\n",
            "\u{202e}",
            "\u{1b}[31m",
            "\u{e9}",
            "word",
            "$x$",
            "---",
            "1. ",
            "- ",
            " ",
            "www.forge.example",
            "# h",
            "\n\n    code",
            "&lt;",
            "&#64;name",
        ];
        let piece = proptest::sample::select(pieces.to_vec());
        (
            proptest::collection::vec(piece, 0..12),
            prop_oneof![9 => Just(1), 1 => Just(200)],
        )
            .prop_map(|(pieces, times): (Vec<&str>, usize)| pieces.concat().repeat(times))
    }

    /// Facts in which every list has some rows of these texts.
    fn hostile_facts() -> impl Strategy<Value = PullRequestFacts> {
        let texts = proptest::collection::vec(hostile(), 6);
        let rows = proptest::collection::vec(prop_oneof![4 => 0..4_usize, 1 => 30..300_usize], 11);
        (texts, rows, any::<bool>()).prop_map(|(texts, rows, apart)| {
            let text = |index: usize| texts[index % texts.len()].clone();
            let mut facts = PullRequestFacts {
                task_id: text(0),
                run: "r23456789".to_owned(),
                branch: text(1),
                base: text(2),
                commit: "0123456789abcdef".to_owned(),
                diff_command: text(3),
                evidence_apart: apart,
                evidence_shares: (0..rows[0]).map(text).collect(),
                cost: "$1.0000".to_owned(),
                image: Some(ImageFact {
                    name: text(4),
                    digest: text(5),
                }),
                agent_settings: (0..rows[1]).map(text).collect(),
                summary: text(5),
                ..PullRequestFacts::default()
            };
            facts.checkboxes = (0..rows[2])
                .map(|row| CheckboxFact {
                    id: format!("M1.{row}"),
                    text: text(row),
                    checked: row % 3 == 0,
                })
                .collect();
            facts.evidence = (0..rows[3])
                .map(|row| EvidenceFact {
                    checkbox: format!("M1.{row}"),
                    text: text(row),
                    command: text(row + 1),
                    ..EvidenceFact::default()
                })
                .collect();
            facts.flags = (0..rows[4])
                .map(|row| FlagFact {
                    path: text(row),
                    reason: text(row + 1),
                })
                .collect();
            facts.files = (0..rows[5])
                .map(|row| FileFact {
                    path: text(row),
                    change: "changed".to_owned(),
                    added: Some(1),
                    removed: None,
                })
                .collect();
            facts.history = (0..rows[6])
                .map(|row| IterationFact {
                    summary: text(row),
                    ..IterationFact::default()
                })
                .collect();
            add_details(&mut facts, text, &rows[7..]);
            facts
        })
    }

    fn add_details(facts: &mut PullRequestFacts, text: impl Fn(usize) -> String, rows: &[usize]) {
        facts.interventions = (0..rows[0])
            .map(|row| InterventionFact {
                after: 1,
                by: text(row),
                what: text(row + 1),
            })
            .collect();
        facts.agents = (0..rows[1])
            .map(|row| AgentFact {
                name: text(row),
                model: text(row + 1),
            })
            .collect();
        facts.costs = (0..rows[2])
            .map(|row| CheckboxCostFact {
                checkbox: text(row),
                iteration: 1,
                cost: "$0.1000".to_owned(),
            })
            .collect();
        facts.network = NetworkFact {
            blocked: (0..rows[3])
                .map(|row| BlockedHostFact {
                    name: text(row),
                    requests: 1,
                })
                .collect(),
            ..NetworkFact::default()
        };
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn hostile_text_breaks_nothing(facts in hostile_facts()) {
            let body = default_body(&facts).unwrap();
            let wrong = wrong(&body);
            prop_assert!(wrong.is_empty(), "{wrong:#?}\n{body}");
        }

        #[test]
        fn hostile_text_in_a_template_of_a_task_breaks_nothing(facts in hostile_facts()) {
            let template = "{% for row in evidence %}\n{{ row.text }}\n| {{ row.text | cell }} | {{ row.command | code | cell }} |\n\n\
                            {{ row.command | fence }}\n{% endfor %}\n";
            let body = custom_body("t", template, &facts).unwrap();
            let wrong = wrong(&body);
            prop_assert!(wrong.is_empty(), "{wrong:#?}\n{body}");
        }
    }

    /// Facts with so many rows of evidence and so many files.
    fn many(rows: usize) -> PullRequestFacts {
        let facts = facts();
        let (row, file, checkbox) = (&facts.evidence[0], &facts.files[0], &facts.checkboxes[0]);
        PullRequestFacts {
            evidence: (0..rows)
                .map(|number| EvidenceFact {
                    checkbox: format!("M1.{number}"),
                    ..row.clone()
                })
                .collect(),
            files: (0..rows)
                .map(|number| FileFact {
                    path: format!("src/{number}.rs"),
                    ..file.clone()
                })
                .collect(),
            checkboxes: (0..rows)
                .map(|number| CheckboxFact {
                    id: format!("M1.{number}"),
                    ..checkbox.clone()
                })
                .collect(),
            ..facts
        }
    }

    #[test]
    fn of_many_rows_the_evidence_stays_and_the_rest_is_counted() {
        let body = default_body(&many(5000)).unwrap();
        assert_eq!(wrong(&body), Vec::<String>::new());
        assert!(body.len() > MAX_BODY_BYTES - 1000, "{}", body.len());
        let rows = body.lines().filter(|line| line.starts_with("| M1.")).count();
        assert!(rows > 400, "{rows}");
        let left_out = format!(
            "\n{} more rows left out here: `ralph status r23456789` shows",
            5000 - rows
        );
        assert!(body.contains(&left_out), "{left_out}: {body}");
        assert!(body.contains("\n- `.gitignore`: a policy file\n"), "{body}");
        assert!(body.contains("\n5000 more files left out here"), "{body}");
    }

    #[test]
    fn details_are_left_out_before_evidence() {
        let body = default_body(&many(300)).unwrap();
        assert_eq!(wrong(&body), Vec::<String>::new());
        assert_eq!(
            body.lines().filter(|line| line.starts_with("| M1.")).count(),
            300 + facts().costs.len()
        );
        let few = default_body(&PullRequestFacts {
            files: many(5000).files,
            ..facts()
        })
        .unwrap();
        let files = few.lines().filter(|line| line.starts_with("- `src/")).count();
        assert!(
            few.len() <= MAX_BODY_BYTES && files > 1000,
            "{} {files}",
            few.len()
        );
        assert!(
            few.contains(&format!("\n{} more files left out here", 5000 - files)),
            "{few}"
        );
    }

    #[test]
    fn the_body_of_a_template_ends_at_a_line() {
        let template = "<details>\n\n```text\n{% for file in files %}\n{{ file.path }}\n{% endfor %}\n```\n\n</details>\n";
        let body = custom_body("t", template, &many(6000)).unwrap();
        assert_eq!(wrong(&body), Vec::<String>::new());
        assert!(body.len() > MAX_BODY_BYTES - 100, "{}", body.len());
        let rows = body.lines().filter(|line| line.starts_with("src/")).count();
        let end = format!(
            "src/{}.rs\n```\n\n</details>\n\n{} more lines left out here: `ralph status r23456789` shows the run, and \
             `journal.jsonl` in its directory has everything.\n",
            rows - 1,
            6000 - rows + 3
        );
        assert!(body.ends_with(&end), "{end}: {}", &body[body.len() - 300..]);
        assert_eq!(custom_body("t", template, &many(3)).unwrap().lines().count(), 9);
    }
}
