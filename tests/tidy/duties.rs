//! What only some files may do, and how long a file may be.

use crate::none;
use crate::repository::{self, File};
use crate::rust::{self, Path};

const LONGEST_FILE: usize = 500;

#[test]
fn only_the_command_line_knows_the_process_it_runs_in() {
    let sources = repository::sources();
    none(
        "prints, exits or looks at the environment outside src/cli and src/assembly/surroundings.rs",
        sources.iter().flat_map(ambient),
    );
}

#[test]
fn only_one_file_writes_to_the_terminal() {
    let sources = repository::sources();
    none(
        "writes to stdout or stderr outside src/cli/ui.rs, which escapes what a terminal would obey",
        sources.iter().flat_map(writers),
    );
}

#[test]
fn only_one_file_reads_the_wall_clock() {
    let sources = repository::sources();
    none(
        "reads the wall clock; take a `Clock` instead",
        sources.iter().flat_map(clocks),
    );
}

#[test]
fn unsafe_code_is_where_the_architecture_says() {
    let document = repository::text("ARCHITECTURE.md");
    let sources = repository::sources();
    none(
        "files with unsafe code that ARCHITECTURE.md does not name",
        sources
            .iter()
            .filter_map(|file| undocumented_unsafe(file, &document)),
    );
}

#[test]
fn agents_do_no_io() {
    let sources = repository::sources();
    none(
        "I/O in src/agent; describe a command instead",
        sources.iter().flat_map(agent_io),
    );
}

#[test]
fn only_one_file_starts_processes() {
    let sources = repository::sources();
    none(
        "starts processes outside src/exec/host.rs",
        sources.iter().flat_map(processes),
    );
}

#[test]
fn no_source_file_is_too_long() {
    let sources = repository::sources();
    none(
        "longer than the limit, tests not counted",
        sources.iter().filter_map(too_long),
    );
}

fn ambient(file: &File) -> Vec<String> {
    let edges = ["src/cli.rs", "src/main.rs", "src/assembly/surroundings.rs"];
    let is_edge = file.path.starts_with("src/cli/") || edges.contains(&&*file.path);
    if is_edge || is_guest(file) {
        Vec::new()
    } else {
        find(file, touches_the_process)
    }
}

/// Other files of the command line may ask whether a stream is a terminal, and how wide it is.
fn writers(file: &File) -> Vec<String> {
    let asks = ["src/cli/token/get.rs", "src/cli/image/progress.rs"];
    if file.path == "src/cli/ui.rs" || asks.contains(&&*file.path) || is_guest(file) {
        return Vec::new();
    }
    find(file, |path| {
        path.contains(&["io", "stdout"]) || path.contains(&["io", "stderr"]) || prints(path)
    })
}

fn prints(path: &Path) -> bool {
    let prints = ["print", "println", "eprint", "eprintln", "dbg"];
    let name = path.segments.last().map_or("", String::as_str);
    path.called_as_macro && prints.contains(&name)
}

fn touches_the_process(path: &Path) -> bool {
    let streams = [["io", "stdin"], ["io", "stdout"], ["io", "stderr"]];
    let exits = [["process", "exit"], ["process", "abort"]];
    path.segments.starts_with(&["std".to_owned(), "env".to_owned()])
        || streams.iter().chain(&exits).any(|wanted| path.contains(wanted))
        || prints(path)
}

/// `src/clock.rs` holds the one clock that reads the time; the guest is a program of its own.
fn clocks(file: &File) -> Vec<String> {
    if file.path == "src/clock.rs" || is_guest(file) {
        return Vec::new();
    }
    let clocks = ["Timestamp", "SystemTime", "Zoned", "SystemClock"];
    find(file, |path| {
        clocks.iter().any(|clock| path.contains(&[clock, "now"])) || path.contains(&["clock", "system"])
    })
    .into_iter()
    .filter(|_| file.path != "src/assembly/surroundings.rs")
    .collect()
}

fn agent_io(file: &File) -> Vec<String> {
    if !file.path.starts_with("src/agent/") {
        return Vec::new();
    }
    let crates = ["tokio", "reqwest", "hyper"];
    find(file, |path| {
        let first = path.segments[0].as_str();
        path.segments.len() > 1 && crates.contains(&first)
            || [["std", "fs"], ["std", "net"], ["exec", "Host"]]
                .iter()
                .any(|wanted| path.contains(wanted))
    })
}

fn undocumented_unsafe(file: &File, document: &str) -> Option<String> {
    let code = rust::without_comments_and_literals(rust::without_tests(&file.text));
    let is_unsafe = rust::tokens(&code).iter().any(|token| token.text == "unsafe");
    (is_unsafe && !document.contains(&format!("`{}`", file.path))).then(|| file.path.clone())
}

fn processes(file: &File) -> Vec<String> {
    if file.path == "src/exec/host.rs" || is_guest(file) {
        return Vec::new();
    }
    find(file, |path| path.contains(&["process", "Command"]))
}

/// The guest is a program of its own, in the sandbox: its process is its own, and starting processes is what it is for.
fn is_guest(file: &File) -> bool {
    file.path.starts_with("src/guest/")
}

fn find(file: &File, is_wrong: impl Fn(&Path) -> bool) -> Vec<String> {
    let paths = rust::paths(rust::without_tests(&file.text));
    let shown = |path: &Path| format!("{}:{}: {}", file.path, path.line, path.segments.join("::"));
    paths.iter().filter(|path| is_wrong(path)).map(shown).collect()
}

fn too_long(file: &File) -> Option<String> {
    let lines = rust::without_tests(&file.text).lines().count();
    let too_long = lines > LONGEST_FILE;
    too_long.then(|| format!("{}: {lines} lines, {LONGEST_FILE} at most", file.path))
}

mod tests {
    use super::{agent_io, ambient, clocks, processes, too_long, undocumented_unsafe, writers};
    use crate::repository::File;

    fn file(path: &str, text: &str) -> File {
        File {
            path: path.into(),
            text: text.into(),
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        assert_eq!(ambient(&file("src/a.rs", text)), expected);
        assert_eq!(ambient(&file("src/cli/a.rs", text)), [""; 0]);
    }

    #[test]
    fn what_belongs_to_the_command_line_is_found_elsewhere() {
        check("fn f() { println!() }", &["src/a.rs:1: println"]);
        check("use std::{env, fs};", &["src/a.rs:1: std::env"]);
        check("let home = std::env::var(x);", &["src/a.rs:1: std::env::var"]);
        check(
            "use std::process;\nprocess::exit(1)",
            &["src/a.rs:2: process::exit"],
        );
        check("io::stdout().lock()", &["src/a.rs:1: io::stdout"]);
    }

    #[test]
    fn what_only_looks_like_it_is_fine() {
        check("env!(x); writeln!(f); let print = 1; // std::env", &[]);
    }

    #[test]
    fn a_process_started_elsewhere_is_found() {
        let starts = "use std::process::{Command, Stdio};";
        assert_eq!(
            processes(&file("src/a.rs", starts)),
            ["src/a.rs:1: std::process::Command"]
        );
        assert_eq!(processes(&file("src/a.rs", "use crate::exec::Command;")), [""; 0]);
        assert_eq!(processes(&file("src/exec/host.rs", starts)), [""; 0]);
    }

    #[test]
    fn what_is_written_past_the_escaping_is_found() {
        let found = |path: &str, text: &str| writers(&file(path, text)).len();
        assert_eq!(found("src/cli/a.rs", "writeln!(std::io::stderr(), x)"), 1);
        assert_eq!(found("src/cli/a.rs", "println!()"), 1);
        assert_eq!(found("src/cli/ui.rs", "io::stdout().lock()"), 0);
        assert_eq!(found("src/cli/a.rs", "context.ui.say(x)"), 0);
    }

    #[test]
    fn a_clock_that_is_read_below_the_edge_is_found() {
        let found = |path: &str, text: &str| clocks(&file(path, text)).len();
        assert_eq!(found("src/a.rs", "let now = jiff::Timestamp::now();"), 1);
        assert_eq!(found("src/a.rs", "use crate::clock;\nclock::system()"), 1);
        assert_eq!(found("src/a.rs", "SystemTime::now()"), 1);
        assert_eq!(
            found(
                "src/a.rs",
                "Instant::now(); self.clock.now(); Timestamp::UNIX_EPOCH"
            ),
            0
        );
        assert_eq!(found("src/clock.rs", "Timestamp::now()"), 0);
        assert_eq!(found("src/assembly/surroundings.rs", "clock::system()"), 0);
    }

    #[test]
    fn an_agent_that_does_io_is_found() {
        let found = |path: &str, text: &str| agent_io(&file(path, text)).len();
        assert_eq!(found("src/agent/a.rs", "use std::{fmt, fs};"), 1);
        assert_eq!(found("src/agent/a.rs", "tokio::spawn(f)"), 1);
        assert_eq!(found("src/agent/a.rs", "use crate::exec::{Command, Host};"), 1);
        assert_eq!(
            found("src/agent/a.rs", "use crate::exec::Command; let tokio = 1;"),
            0
        );
        assert_eq!(found("src/model/a.rs", "use std::fs;"), 0);
    }

    #[test]
    fn unsafe_code_needs_its_line_in_the_architecture() {
        let guest = file("src/guest/sys.rs", "unsafe { f() }");
        assert_eq!(undocumented_unsafe(&guest, "in `src/guest/sys.rs`"), None);
        assert!(undocumented_unsafe(&guest, "in `src/guest/main.rs`").is_some());
        assert_eq!(
            undocumented_unsafe(&file("src/a.rs", "// unsafe\n\"unsafe\""), ""),
            None
        );
    }

    #[test]
    fn the_limit_leaves_tests_out() {
        let body = "x\n".repeat(500);
        assert_eq!(too_long(&file("src/a.rs", &body)), None);
        assert_eq!(
            too_long(&file(
                "src/a.rs",
                &format!("{body}#[cfg(test)]\nmod tests {{\nx\n")
            )),
            None
        );
        assert!(too_long(&file("src/a.rs", &format!("{body}x\n"))).is_some());
    }
}
