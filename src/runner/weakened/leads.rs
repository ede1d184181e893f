//! Where the lines of a command or of a script lead: to scripts, package scripts, targets, and data to compare with.

use super::cases::{is_check_script, is_expectation};
use super::follow::Selector;

/// Where a command leads: a part of a file.
pub(super) struct Lead {
    /// Names of the file, the one that takes precedence first.
    pub(super) paths: Vec<String>,
    pub(super) selector: Selector,
    /// The directory in which its own commands run.
    pub(super) dir: String,
}

/// Where a text leads whose commands run in `dir`.
pub(super) fn leads(text: &str, is_command: bool, dir: &str) -> Vec<Lead> {
    let mut found = Vec::new();
    let mut here = dir.to_owned();
    for line in text.replace("\\\n", " ").lines() {
        let before = here.clone();
        for mut lead in line_leads(line, is_command, &mut here) {
            // In a recipe a `cd` is over after its line.
            if let [path] = lead.paths.as_slice()
                && let Some(path) = path
                    .strip_prefix(here.as_str())
                    .and_then(|path| join(dir, path.trim_start_matches('/')).filter(|_| here != dir))
            {
                lead.paths.push(path);
            }
            found.push(lead);
        }
        if line.contains('(') {
            here = before;
        }
    }
    found
}

fn line_leads(line: &str, is_command: bool, here: &mut String) -> Vec<Lead> {
    let line = line.trim().trim_start_matches(['@', '-']);
    if line.starts_with('#') {
        return Vec::new();
    }
    // What is compared, searched or written elsewhere is the product.
    let is_product = line.contains("$(")
        || line.contains('`')
        || line.replace("||", "").contains('|')
        || line.contains('<');
    let mut found = Vec::new();
    for simple in line.split(&[';', '|', '&', '(', ')', '{', '}'][..]) {
        let words: Vec<&str> = simple
            .split_whitespace()
            .map(|word| word.trim_matches(['"', '\'']))
            .collect();
        let words = without_prefixes(&words);
        let Some((program, arguments)) = words.split_first() else {
            continue;
        };
        if *program == "cd" {
            let dir = arguments.first().and_then(|dir| join(here, dir));
            *here = dir.unwrap_or_else(|| here.clone());
            continue;
        }
        let is_part = |lead: &Lead| {
            let sourced = matches!(*program, "." | "source");
            let is_check = lead.paths.iter().any(|path| is_check_script(path));
            lead.selector != Selector::Whole || sourced || is_check || (is_command && !is_product)
        };
        found.extend(
            command_leads(program, arguments, here)
                .into_iter()
                .filter(is_part),
        );
        found.extend(data_leads(words, here));
    }
    found
}

/// A command without words before it that do not change what it is, such as `timeout 60` or `uv run`.
fn without_prefixes<'w>(words: &'w [&'w str]) -> &'w [&'w str] {
    const PREFIXES: [&str; 24] = [
        "env", "time", "exec", "nice", "command", "sudo", "npx", "bundle", "poetry", "uv", "pipenv", "pdm",
        "rye", "hatch", "timeout", "xvfb-run", "if", "then", "do", "else", "!", "while", "until", "stdbuf",
    ];
    let is_prefix = |(at, word): (usize, &&str)| {
        let assignment = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        });
        let of_prefix = at > 0
            && (word.starts_with('-')
                || word.starts_with(|c: char| c.is_ascii_digit())
                || matches!(*word, "run" | "exec"));
        PREFIXES.contains(word) || assignment || of_prefix
    };
    let count = words
        .iter()
        .enumerate()
        .take_while(|word| is_prefix(*word))
        .count();
    &words[count..]
}

fn command_leads(program: &str, arguments: &[&str], dir: &str) -> Vec<Lead> {
    let plain = || arguments.iter().copied().filter(|word| !word.starts_with('-'));
    let first = arguments.first().copied().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or(program);
    let file = |path: Option<&str>| {
        let lead = path.and_then(|path| file_lead(path, Selector::Whole, dir));
        lead.into_iter().collect()
    };
    match name {
        "sh" | "bash" | "dash" | "zsh" | "ksh" => {
            if first.starts_with('-') && !first.starts_with("--") && first.ends_with('c') {
                let inner = without_prefixes(&arguments[1..]).split_first();
                return inner.map_or_else(Vec::new, |(program, arguments)| {
                    command_leads(program, arguments, dir)
                });
            }
            file(script_of_shell(arguments))
        }
        "python" | "python3" | "node" | "ruby" | "perl" | "php" | "deno" | "bun" | "." | "source"
            if !matches!(first, "-c" | "-m" | "-e") =>
        {
            file(plain().next())
        }
        "npm" | "yarn" | "pnpm" => {
            let script = plain().find(|word| !matches!(*word, "run" | "run-script"));
            let script = script.map(|script| if script == "t" { "test" } else { script });
            script.map_or_else(Vec::new, |script| package_leads(script, dir))
        }
        "make" | "gmake" => target_leads(arguments, &["GNUmakefile", "makefile", "Makefile"], dir),
        "just" => target_leads(arguments, &["justfile", "Justfile", ".justfile"], dir),
        _ if program.contains('/') => file(Some(program)),
        _ => Vec::new(),
    }
}

/// The first word that is neither an option nor the value of `-o`.
fn script_of_shell<'w>(arguments: &[&'w str]) -> Option<&'w str> {
    let mut words = arguments.iter().copied();
    while let Some(word) = words.next() {
        if !word.starts_with(['-', '+']) {
            return Some(word);
        }
        if word.ends_with('o') {
            words.next();
        }
    }
    None
}

/// Files that a command reads to decide: settings that it names, and what it compares with.
fn data_leads(words: &[&str], dir: &str) -> Vec<Lead> {
    let program = words.first().copied().unwrap_or_default();
    let compares = matches!(program, "diff" | "cmp");
    // `-c` of an interpreter is followed by code.
    let has_settings = !matches!(
        program,
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "python" | "python3"
    );
    let mut found = Vec::new();
    let mut previous = "";
    for word in words {
        let (option, value) = word.split_once('=').unwrap_or((previous, word));
        let is_settings = has_settings && matches!(option, "-c" | "--config" | "--config-file" | "--rcfile");
        if compares || is_settings || is_expectation(value) {
            found.extend(file_lead(value, Selector::Data, dir));
        }
        previous = word;
    }
    found
}

/// A path of the repository. `None` for one that leads out of it.
fn join(dir: &str, path: &str) -> Option<String> {
    if path.starts_with(['/', '~']) || path.contains('$') {
        return None;
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn file_lead(path: &str, selector: Selector, dir: &str) -> Option<Lead> {
    let path = join(dir, path).filter(|path| !path.is_empty())?;
    Some(Lead {
        paths: vec![path],
        selector,
        dir: dir.to_owned(),
    })
}

fn package_leads(script: &str, dir: &str) -> Vec<Lead> {
    let lead = |prefix| {
        file_lead(
            "package.json",
            Selector::PackageScript(format!("{prefix}{script}")),
            dir,
        )
    };
    ["pre", "", "post"].into_iter().filter_map(lead).collect()
}

fn target_leads(arguments: &[&str], files: &[&str], dir: &str) -> Vec<Lead> {
    let (mut dir, mut file) = (dir.to_owned(), None);
    let mut targets: Vec<Option<String>> = Vec::new();
    let mut words = arguments.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "-C" | "--directory" => {
                let inner = words.next().and_then(|inner| join(&dir, inner));
                dir = inner.unwrap_or(dir);
            }
            "-f" | "--file" | "--makefile" | "--justfile" => file = words.next(),
            _ if word.starts_with('-') || word.contains('=') => {}
            _ => targets.push(Some(word.to_owned())),
        }
    }
    if targets.is_empty() {
        targets.push(None);
    }
    let files = file.as_ref().map_or(files, std::slice::from_ref);
    let paths: Vec<String> = files.iter().filter_map(|file| join(&dir, file)).collect();
    let lead = |target| Lead {
        paths: paths.clone(),
        selector: Selector::Target(target),
        dir: dir.clone(),
    };
    targets.into_iter().map(lead).collect()
}
