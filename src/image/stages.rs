//! The image that a Dockerfile of the user starts from.

use std::collections::HashMap;

use super::reference::ImageReference;

/// The build argument that names the base.
pub(super) const BASE_ARGUMENT: &str = "BASE_IMAGE";

/// The name for an empty base.
const SCRATCH: &str = "scratch";

/// Checks that the last stage of a Dockerfile starts from `${BASE_IMAGE}`, and that the argument is declared. The error says
/// in which line it does not.
pub(super) fn check(dockerfile: &str) -> Result<(), String> {
    match last_stage(dockerfile)? {
        Stage::OnBase => Ok(()),
        Stage::OnOther { line, image } => Err(format!(
            "line {line}: the last stage starts from `{image}`, not from `${{BASE_IMAGE}}`"
        )),
    }
}

/// The image that the last stage of a Dockerfile starts from; `given` if that is `${BASE_IMAGE}`.
pub(super) fn base_image(dockerfile: &str, given: ImageReference) -> Result<ImageReference, String> {
    match last_stage(dockerfile)? {
        Stage::OnBase => Ok(given),
        Stage::OnOther { line, image } => {
            let named = ImageReference::parse(&image).ok().filter(|_| image != SCRATCH);
            named.ok_or_else(|| {
                format!("line {line}: the last stage starts from `{image}`, which is not an image reference")
            })
        }
    }
}

fn last_stage(dockerfile: &str) -> Result<Stage, String> {
    let mut declared = false;
    let mut stages: HashMap<String, Stage> = HashMap::new();
    let mut last = None;
    for Instruction { line, words } in instructions(dockerfile) {
        let is = |name: &str| words[0].eq_ignore_ascii_case(name);
        if is("ARG") && last.is_none() {
            declared |= words[1..]
                .iter()
                .any(|word| word.split('=').next() == Some(BASE_ARGUMENT));
        } else if is("FROM") {
            let mut words = words.iter().skip(1).filter(|word| !word.starts_with("--"));
            let image = words.next().map(String::as_str).unwrap_or_default();
            let stage = stage(image, line, &stages);
            if stage == Stage::OnBase && !declared {
                return Err(format!(
                    "line {line}: `FROM ${{BASE_IMAGE}}` without `ARG BASE_IMAGE` before the first `FROM`"
                ));
            }
            if let Some(name) = words.nth(1) {
                stages.insert(name.to_lowercase(), stage.clone());
            }
            last = Some(stage);
        }
    }
    last.ok_or_else(|| {
        let line = dockerfile.lines().count().max(1);
        format!("line {line}: the file ends without a `FROM ${{BASE_IMAGE}}`")
    })
}

/// What a stage starts from, through earlier stages.
#[derive(Clone, PartialEq, Eq)]
enum Stage {
    OnBase,
    OnOther { line: usize, image: String },
}

fn stage(image: &str, line: usize, earlier: &HashMap<String, Stage>) -> Stage {
    let unquoted = image.trim_matches('"');
    let name = match unquoted
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
    {
        Some(inner) => inner.split([':', '-']).next(),
        None => unquoted.strip_prefix('$'),
    };
    if name == Some(BASE_ARGUMENT) {
        return Stage::OnBase;
    }
    earlier
        .get(&image.to_lowercase())
        .cloned()
        .unwrap_or(Stage::OnOther {
            line,
            image: image.to_owned(),
        })
}

/// How many lines come before the first `FROM`.
pub(super) fn lines_before_first_from(dockerfile: &str) -> usize {
    let mut instructions = instructions(dockerfile).into_iter();
    let first = instructions.find(|instruction| instruction.words[0].eq_ignore_ascii_case("FROM"));
    first.map_or(0, |first| first.line - 1)
}

/// One instruction of a Dockerfile: the line it starts in, and its words, at least one.
pub(super) struct Instruction {
    pub(super) line: usize,
    pub(super) words: Vec<String>,
}

/// The instructions, with continued lines joined, without comments and here-documents.
pub(super) fn instructions(dockerfile: &str) -> Vec<Instruction> {
    let text = dockerfile.strip_prefix('\u{feff}').unwrap_or(dockerfile);
    let escape = escape_character(text);
    let mut lines = text.lines().zip(1..);
    let mut instructions = Vec::new();
    while let Some((first, line)) = lines.next() {
        if is_comment_or_blank(first) {
            continue;
        }
        let mut rest = lines.by_ref().map(|(text, _)| text);
        let words = words_of(first, &mut rest, escape);
        for end in here_documents(&words) {
            rest.find(|text| text.trim_start_matches('\t') == end);
        }
        if !words.is_empty() {
            instructions.push(Instruction { line, words });
        }
    }
    instructions
}

/// The words of the instruction that starts with this line, and of the lines that continue it.
fn words_of<'a>(first: &'a str, rest: &mut impl Iterator<Item = &'a str>, escape: char) -> Vec<String> {
    let mut whole = String::new();
    let mut part = first;
    while let Some(continued) = part.trim_end().strip_suffix(escape) {
        whole.push_str(continued);
        part = rest.find(|line| !is_comment_or_blank(line)).unwrap_or_default();
    }
    whole.push_str(part);
    whole.split_whitespace().map(str::to_owned).collect()
}

fn is_comment_or_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// A backslash, unless a `# escape=` at the top of the file names a backtick.
pub(super) fn escape_character(text: &str) -> char {
    let directives = text
        .lines()
        .map_while(|line| line.trim().strip_prefix('#')?.split_once('='));
    let mut escapes = directives.filter(|(name, _)| name.trim().eq_ignore_ascii_case("escape"));
    match escapes.next() {
        Some((_, value)) if value.trim() == "`" => '`',
        _ => '\\',
    }
}

/// The words that end the here-documents of an instruction, in order.
fn here_documents(words: &[String]) -> Vec<String> {
    let takes_them = words.first().is_some_and(|word| {
        ["RUN", "COPY", "ADD"]
            .iter()
            .any(|name| word.eq_ignore_ascii_case(name))
    });
    let markers = words.iter().filter_map(|word| {
        let at = word.find("<<")?;
        let is_redirection = word[..at].bytes().all(|b| b.is_ascii_digit());
        let name = word[at + 2..].trim_start_matches('-').trim_matches(['"', '\'']);
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        (takes_them && is_redirection && is_name).then(|| name.to_owned())
    });
    markers.collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n")]
    #[case("# syntax=docker/dockerfile:1\n\n arg BASE_IMAGE=debian\nfrom $BASE_IMAGE as x\n")]
    #[case("ARG BASE_IMAGE\r\nFROM --platform=linux/amd64 ${BASE_IMAGE:-debian}\r\n")]
    #[case("ARG A=1 BASE_IMAGE\nFROM \"${BASE_IMAGE}\"\n")]
    #[case("ARG \\\n  # why\n  BASE_IMAGE\nFROM \\\n\n ${BASE_IMAGE}")]
    #[case("# escape=`\nARG `\n BASE_IMAGE\nFROM ${BASE_IMAGE}")]
    #[case("ARG BASE_IMAGE\nFROM rust AS build\nRUN make\nFROM ${BASE_IMAGE}\nCOPY --from=build /a /a")]
    #[case("ARG BASE_IMAGE\nFROM ${BASE_IMAGE} AS Tools\nFROM rust AS build\nFROM tools")]
    #[case(
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN psql <<EOF\nSELECT x\nFROM users\nEOF\nCOPY <<-'A' <<B /x/\nFROM a\n\tA\nFROM b\nB\n"
    )]
    fn a_dockerfile_that_stands_on_the_base_is_taken(#[case] text: &str) {
        assert_eq!(check(text), Ok(()));
    }

    #[rstest]
    #[case(
        "FROM ${BASE_IMAGE}\n",
        "line 1: `FROM ${BASE_IMAGE}` without `ARG BASE_IMAGE` before the first `FROM`"
    )]
    #[case(
        "# ARG BASE_IMAGE\n\nFROM $BASE_IMAGE\nARG BASE_IMAGE\n",
        "line 3: `FROM ${BASE_IMAGE}` without `ARG BASE_IMAGE` before the first `FROM`"
    )]
    #[case(
        "FROM rust AS build\nARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n",
        "line 3: `FROM ${BASE_IMAGE}` without `ARG BASE_IMAGE` before the first `FROM`"
    )]
    #[case(
        "ARG BASE_IMAGE\n\nFROM debian:12\n",
        "line 3: the last stage starts from `debian:12`, not from `${BASE_IMAGE}`"
    )]
    #[case(
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nFROM rust AS a\nFROM a\n",
        "line 3: the last stage starts from `rust`, not from `${BASE_IMAGE}`"
    )]
    #[case(
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE_2}\n",
        "line 2: the last stage starts from `${BASE_IMAGE_2}`, not from `${BASE_IMAGE}`"
    )]
    #[case(
        "ARG BASE_IMAGE\nFROM\n",
        "line 2: the last stage starts from ``, not from `${BASE_IMAGE}`"
    )]
    #[case("", "line 1: the file ends without a `FROM ${BASE_IMAGE}`")]
    #[case(
        "ARG BASE_IMAGE\nRUN x\n",
        "line 2: the file ends without a `FROM ${BASE_IMAGE}`"
    )]
    #[case(
        "ARG BASE_IMAGE\nRUN <<EOF\nFROM ${BASE_IMAGE}\n",
        "line 3: the file ends without a `FROM ${BASE_IMAGE}`"
    )]
    fn any_other_is_rejected_with_its_line(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(check(text).unwrap_err(), expected);
    }

    #[rstest]
    #[case::argument("ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n", Ok("given:1"))]
    #[case::image("FROM rust AS build\nFROM debian:12\n", Ok("debian:12"))]
    #[case::earlier_stage("FROM debian:12 AS a\nFROM a\n", Ok("debian:12"))]
    #[case::another_argument(
        "ARG X\nFROM ${X}\n",
        Err("line 2: the last stage starts from `${X}`, which is not an image reference")
    )]
    #[case::nothing(
        "FROM scratch\n",
        Err("line 1: the last stage starts from `scratch`, which is not an image reference")
    )]
    fn the_image_that_a_dockerfile_starts_from_is_found(
        #[case] text: &str,
        #[case] expected: Result<&str, &str>,
    ) {
        let given = ImageReference::parse("given:1").unwrap();
        let found = base_image(text, given);
        assert_eq!(
            found
                .as_ref()
                .map(ImageReference::as_str)
                .map_err(ToString::to_string),
            expected.map_err(ToOwned::to_owned)
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(?s)(FROM|ARG BASE_IMAGE|RUN|<<EOF|EOF|\\$\\{BASE_IMAGE\\}|[\\\\#\" \n]|.){0,30}") {
            let _ = check(&text);
        }
    }
}
