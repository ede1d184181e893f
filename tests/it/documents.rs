//! The commands of the documents: ralph accepts the arguments of each, and each is run here or says why not.
//!
//! A block of commands is `sh`, or `console` with `$ ` before each command and the lines that it must print below it. The blocks
//! of a document are one script, which runs in an empty directory. Comments above a block change that:
//!
//! - `<!-- run in a project -->` begins a new script in a place of [`SCENES`].
//! - `<!-- not run: REASON -->` leaves the block out, and ``<!-- not run: `A`, `B`: REASON -->`` these lines of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::ralph::{
    Place, TASK, call, commit, finish, program, script, steady_path, whole_task, write,
};

/// What comes before each script: an empty directory; a repository with one commit; the same with a task and `ralph.toml`; the
/// same with a run that has spent its budget, or with one that is done; a repository with the first settings of the page as
/// `ralph.toml`.
const SCENES: [&str; 6] = [
    "an empty directory",
    "a repository",
    "a project",
    "a project with a run",
    "a project with a run that is done",
    "a repository with the settings of this page",
];

/// Blocks in these languages are no commands; other tests load or compile many of them.
const NO_COMMANDS: [&str; 11] = [
    "text",
    "toml",
    "yaml",
    "json",
    "markdown",
    "rust",
    "rust,ignore",
    "rust,no_run",
    "nix",
    "nginx",
    "dockerfile",
];

/// A fenced block of a document.
struct Block {
    line: usize,
    language: String,
    lines: Vec<String>,
    /// The comments above it, without their marks.
    comments: Vec<String>,
}

#[test]
fn every_block_of_code_names_its_language() {
    for (document, block) in all_blocks() {
        let language = block.language.as_str();
        let is_known = ["sh", "console"].contains(&language) || NO_COMMANDS.contains(&language);
        assert!(is_known, "{document}:{}: {language:?}", block.line);
    }
}

#[test]
fn ralph_accepts_every_command_line_of_the_documents() {
    let place = Place::bare();
    let mut refused = String::new();
    let mut accepted = 0;
    for (document, block) in all_blocks() {
        for line in block.commands() {
            for arguments in ralph_arguments(&line) {
                match usage_error(&place, &arguments) {
                    Some(error) => writeln!(refused, "{document}:{}: {line}\n{error}", block.line).unwrap(),
                    None => accepted += 1,
                }
            }
        }
    }
    assert!(refused.is_empty(), "{refused}");
    assert!(accepted > 50, "{accepted}");
}

/// Why ralph refuses these arguments, if it does. In a directory that was removed it parses them and does nothing more.
fn usage_error(place: &Place, arguments: &[String]) -> Option<String> {
    let mut command = place.shell("mkdir gone; cd gone; rmdir ../gone; exec \"$0\" \"$@\"");
    let ended = finish(command.arg(program()).args(arguments));
    let is_parsed = ended
        .stderr
        .starts_with("ralph: cannot read the current directory");
    (!is_parsed).then_some(ended.stderr)
}

#[test]
fn every_command_of_the_documents_runs_or_says_why_not() {
    let mut documents: BTreeMap<String, Vec<Block>> = BTreeMap::new();
    for (document, block) in all_blocks() {
        documents.entry(document).or_default().push(block);
    }
    let failures = documents.iter().flat_map(|(document, blocks)| {
        let settings = blocks.iter().find(|block| block.language == "toml");
        let settings = settings.map_or(String::new(), |block| block.lines.join("\n"));
        let failures = scripts(document, blocks)
            .into_iter()
            .filter_map(move |script| script.run(&settings).err());
        failures.map(move |failure| format!("{document}: {failure}"))
    });
    let failures: Vec<String> = failures.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

impl Block {
    /// Its commands without comments, each on one line.
    fn commands(&self) -> Vec<String> {
        self.commands_with_output()
            .into_iter()
            .map(|(command, _)| command)
            .collect()
    }

    /// The same, with what each prints.
    fn commands_with_output(&self) -> Vec<(String, Vec<String>)> {
        let text = self.lines.join("\n").replace("\\\n", " ");
        let mut commands: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.lines() {
            match (
                self.language.as_str(),
                line.strip_prefix("$ "),
                commands.last_mut(),
            ) {
                ("sh", _, _) => commands.push((without_comment(line).to_owned(), Vec::new())),
                ("console", Some(command), _) => commands.push((command.to_owned(), Vec::new())),
                ("console", None, Some((_, output))) => output.push(line.to_owned()),
                _ => {}
            }
        }
        commands.retain(|(command, _)| !command.is_empty());
        commands
    }

    /// The scene that begins with this block.
    fn scene(&self) -> Option<&'static str> {
        let named = self
            .comments
            .iter()
            .find_map(|comment| comment.strip_prefix("run in "))?;
        let scene = SCENES.into_iter().find(|scene| *scene == named);
        Some(scene.unwrap_or_else(|| panic!("{}: there is no scene {named:?}", self.line)))
    }

    /// Which of its commands are not run: `None` without a comment, and all of them if it names none.
    fn left_out(&self) -> Option<Vec<String>> {
        let comment = self
            .comments
            .iter()
            .find_map(|comment| comment.strip_prefix("not run: "))?;
        if !comment.starts_with('`') {
            return Some(self.commands());
        }
        let (named, reason) = comment.rsplit_once("`: ").expect("commands, then a reason");
        assert!(!reason.is_empty());
        let named: Vec<String> = named.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let commands = self.commands();
        for name in &named {
            assert!(
                commands.contains(name),
                "{}: {name:?} is not in {commands:?}",
                self.line
            );
        }
        Some(named)
    }
}

/// Commands that run one after the other in one shell.
struct Script {
    document: String,
    scene: &'static str,
    commands: Vec<(String, Vec<String>)>,
}

fn scripts(document: &str, blocks: &[Block]) -> Vec<Script> {
    let new = |scene| Script {
        document: document.to_owned(),
        scene,
        commands: Vec::new(),
    };
    let mut scripts = vec![new(SCENES[0])];
    for block in blocks {
        scripts.extend(block.scene().map(new));
        let left_out = block.left_out().unwrap_or_default();
        let run = block
            .commands_with_output()
            .into_iter()
            .filter(|(command, _)| !left_out.contains(command));
        scripts.last_mut().unwrap().commands.extend(run);
    }
    scripts.retain(|script| !script.commands.is_empty());
    scripts
}

impl Script {
    fn run(&self, settings: &str) -> Result<(), String> {
        let place = scene(self.scene, settings);
        let printed = |index: usize| place.path().join(format!("printed-{index}"));
        let mut lines = vec!["set -x".to_owned()];
        for (index, (command, output)) in self.commands.iter().enumerate() {
            let command = with_names(command, &place);
            lines.push(if output.is_empty() {
                command
            } else {
                format!("{{ {command}; }} >{} || true", printed(index).display())
            });
        }
        let ended = finish(&mut in_shell(&place, &lines.join("\n")));
        if ended.code != Some(0) {
            return Err(format!("in {}: {}", self.scene, ended.stderr));
        }
        for (index, (command, output)) in self
            .commands
            .iter()
            .enumerate()
            .filter(|(_, (_, output))| !output.is_empty())
        {
            let printed = fs::read_to_string(printed(index)).unwrap();
            let printed = printed.replace(&format!("{}/", place.repo().display()), "");
            if printed.trim_end() != output.join("\n") {
                return Err(format!("`{command}` prints\n{printed}"));
            }
        }
        println!(
            "{}: {} commands in {}",
            self.document,
            self.commands.len(),
            self.scene
        );
        Ok(())
    }
}

fn scene(name: &str, settings: &str) -> Place {
    if name == SCENES[0] {
        return Place::bare();
    }
    let place = Place::new();
    if name.starts_with("a repository") {
        fs::remove_file(place.repo().join("ralph_task.md")).unwrap();
        fs::remove_file(place.repo().join("ralph.toml")).unwrap();
    }
    if name.ends_with("with the settings of this page") {
        place.write("ralph.toml", settings);
    }
    if name.ends_with("with a run that is done") {
        place.run_script(&script([whole_task()])).expect(0, &["done: "]);
    }
    if name.ends_with("with a run") {
        let answer = serde_json::json!({
            "summary": "The first file",
            "actions": [write("a.txt", "hello\n"), commit("Say hello in the first file")],
            "claims": {"checkboxes_checked": ["M1.1"]},
        });
        let steps = serde_json::json!({"iterations": [[call(&answer)]]});
        finish(&mut place.scripted(&steps, &["--max-iterations", "1"])).expect(1, &["budget exceeded"]);
    }
    place
}

/// The command with the names of this place: `RUN` is its run, and `BRANCH` its branch.
fn with_names(command: &str, place: &Place) -> String {
    let run = place.runs().first().map(|_| place.run_id());
    let named = |word| match (word, &run) {
        ("RUN", Some(run)) => run.clone(),
        ("BRANCH", Some(_)) => "ralph/t1/say-hello".to_owned(),
        (word, _) => word.replace("..BRANCH", "..ralph/t1/say-hello"),
    };
    command.split(' ').map(named).collect::<Vec<_>>().join(" ")
}

/// A shell in which `ralph` is the built program, a key is set, and the editor writes a valid task.
fn in_shell(place: &Place, script: &str) -> Command {
    let task = place.path().join("edited.md");
    fs::write(&task, TASK).unwrap();
    let mut command = place.shell(script);
    let path = steady_path().into_string().unwrap();
    command.env(
        "PATH",
        format!("{}:{path}", program().parent().unwrap().display()),
    );
    command.env("EDITOR", format!("cp {}", task.display()));
    command.env("ZAI_API_KEY", "sk-of-no-service");
    for (name, value) in [("NAME", "user"), ("EMAIL", "user@localhost")] {
        command.env(format!("GIT_AUTHOR_{name}"), value);
        command.env(format!("GIT_COMMITTER_{name}"), value);
    }
    command
}

/// The blocks of all documents for users and contributors, each with its document.
fn all_blocks() -> Vec<(String, Block)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut documents = vec![
        "README.md".to_owned(),
        "CONTRIBUTING.md".to_owned(),
        "ARCHITECTURE.md".to_owned(),
    ];
    for folder in ["docs", "docs/guide", "docs/how-to", "docs/reference", "docs/adr"] {
        let names = fs::read_dir(root.join(folder)).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let pages = names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "md"));
        documents.extend(pages.map(|name| format!("{folder}/{name}")));
    }
    documents.sort();
    let in_document = |document: String| {
        let text = fs::read_to_string(root.join(&document)).unwrap();
        blocks(&text)
            .into_iter()
            .map(move |block| (document.clone(), block))
            .collect::<Vec<_>>()
    };
    documents.into_iter().flat_map(in_document).collect()
}

/// The fenced blocks of a page. A fence ends with as many backticks as it began with.
fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut comments = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if line.starts_with("```") {
            let fence = "`".repeat(line.chars().take_while(|c| *c == '`').count());
            let inside = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| line.trim() != fence);
            let inside = inside.map(|line| line.get(indent..).unwrap_or_default().to_owned());
            blocks.push(Block {
                line: index + 1,
                language: line.trim_start_matches('`').to_owned(),
                lines: inside.collect(),
                comments: std::mem::take(&mut comments),
            });
        } else if let Some(comment) = line
            .strip_prefix("<!-- ")
            .and_then(|rest| rest.strip_suffix(" -->"))
        {
            comments.push(comment.to_owned());
        } else if !line.is_empty() {
            comments.clear();
        }
    }
    blocks
}

/// A line without the comment at its end.
fn without_comment(line: &str) -> &str {
    let end = if line.starts_with("# ") {
        Some(0)
    } else {
        line.find(" # ")
    };
    line[..end.unwrap_or(line.len())].trim()
}

/// The arguments of each `ralph` in a line: the words up to the next operator of the shell.
fn ralph_arguments(line: &str) -> Vec<Vec<String>> {
    let words = words(line);
    let commands =
        words.split(|word| ["|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1"].contains(&word.as_str()));
    let arguments = commands.filter_map(|words| {
        let at = words.iter().position(|word| word == "ralph")?;
        (at + 1 < words.len()).then(|| words[at + 1..].to_vec())
    });
    arguments.collect()
}

/// The words of a line as a shell separates them, without its expansions.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(String::new()),
            (c, _) => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn a_block_has_its_comments_commands_and_output() {
    let page = "\
Text
<!-- run in a project -->
<!-- not run: `b --c`: needs a key -->

  ```sh
  ralph a \"x y\" > z  # why
  b --c
  ```

````console
$ ralph d
``` e
````
";
    let blocks = blocks(page);
    let scripts = scripts("x.md", &blocks);
    assert_eq!((scripts.len(), scripts[0].scene), (1, "a project"));
    let expected = [
        ("ralph a \"x y\" > z", vec![]),
        ("ralph d", vec!["``` e".to_owned()]),
    ];
    let expected = expected.map(|(command, output)| (command.to_owned(), output));
    assert_eq!(scripts[0].commands, expected);
    assert_eq!(
        ralph_arguments("A=b ralph a \"x y\" > z && ralph d"),
        [vec!["a", "x y"], vec!["d"]]
    );
}
