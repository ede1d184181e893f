//! What a run leaves: its own files, its state ref, its branch, its pull request, and an untouched user.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use jiff::Timestamp;
use ralph::state::{Journal, JournalEntry, StateError};
use rstest::rstest;
use serde_json::Value;

use crate::need;
use crate::support::ralph::{
    Ended, Place, commit, doing, ending, finish, in_place_of, run, script, whole_task, write,
};
use crate::support::small_disk::SmallDisk;

/// A place with a run that did half of the task in one iteration and the rest in another.
fn done() -> Place {
    let place = Place::new();
    let half = doing([write("a.txt", "hello\n"), run("echo out; false"), commit("never")]);
    place.run_script(&script([half, whole_task()])).expect(0, &[]);
    place
}

const FILES: [&str; 6] = [
    "guardrails.md",
    "progress.md",
    "errors.log",
    "activity.log",
    "notes.md",
    "diagnostics.md",
];
const ITERATION_FILES: [&str; 7] = [
    "prompt.md",
    "response.json",
    "actions.jsonl",
    "git_diff.patch",
    "test_output.txt",
    "metrics.json",
    "pr_state.json",
];

#[test]
fn every_file_of_a_run_is_kept_with_it_and_in_its_state_ref() {
    let place = done();
    let kept = place.git(&[
        "ls-tree",
        "-r",
        "--name-only",
        &format!("refs/ralph/{}/state", place.run_id()),
    ]);
    let kept: Vec<&str> = kept.lines().collect();
    let iterations = ["1", "2"]
        .iter()
        .flat_map(|number| ITERATION_FILES.map(|name| format!("iterations/{number}/{name}")));
    for name in FILES.map(ToOwned::to_owned).into_iter().chain(iterations) {
        let text = place.noted(&name);
        let path = format!("ralph/{name}");
        assert!(kept.contains(&path.as_str()), "{path} is not in {kept:?}");
        let object = format!("refs/ralph/{}/state:{path}", place.run_id());
        assert_eq!(place.git(&["cat-file", "blob", &object]), text, "{path}");
    }
    for name in ["ralph_task.md", "run.json"] {
        assert!(kept.contains(&name), "{name} is not in {kept:?}");
    }
    assert!(kept.iter().any(|name| name.starts_with("journal/")), "{kept:?}");
    let task = fs::read_to_string(place.run_dir().join("ralph_task.md")).unwrap();
    assert!(
        task.contains("- [x] M1.1") && task.contains("- [x] M1.2"),
        "{task}"
    );
}

#[test]
fn the_files_of_an_iteration_hold_what_their_names_say() {
    let place = done();
    let first = |name: &str| place.noted(&format!("iterations/1/{name}"));
    let json = |name: &str| serde_json::from_str::<Value>(&first(name)).unwrap();
    assert!(first("prompt.md").contains("M1.1 a.txt says hello"));
    assert!(
        json("response.json")["text"]
            .as_str()
            .is_some_and(|text| text.contains("some work"))
    );
    let actions: Vec<Value> = first("actions.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let went: Vec<&Value> = actions.iter().map(|action| &action["ok"]).collect();
    assert_eq!(went, [true, false], "{actions:?}");
    assert_eq!(actions[1]["action"]["command"], "echo out; false");
    assert!(first("git_diff.patch").contains("+hello"));
    assert!(first("test_output.txt").contains("$ sh test.sh"));
    assert_eq!(json("pr_state.json")["opened"], false);
    let metrics = json("metrics.json");
    for key in [
        "tokens",
        "cost_usd",
        "loop_score",
        "signals",
        "changed_lines",
        "milliseconds",
    ] {
        assert!(!metrics[key].is_null(), "{key} is not in {metrics}");
    }
    let last: Value = serde_json::from_str(&place.noted("iterations/2/pr_state.json")).unwrap();
    assert_eq!(last["opened"], true);
    assert!(
        place
            .noted("errors.log")
            .contains("[iteration 1] run: echo out; false")
    );
    assert!(
        place
            .noted("activity.log")
            .contains("loop score 0.00: committed -0.2, ")
    );
    assert!(
        place
            .noted("progress.md")
            .contains("- iteration 2: some work; tests pass; ticked M1.1, M1.2")
    );
}

#[test]
fn nothing_of_the_user_is_touched() {
    let place = Place::new();
    place.write("staged.txt", "staged\n");
    place.git(&["add", "staged.txt"]);
    place.write("README.md", "edited\n");
    let look = || {
        (
            place.git(&["status", "--porcelain=v2", "--branch", "--ignored"]),
            place.git(&["rev-parse", "HEAD"]),
            place.git(&["ls-files", "--stage"]),
            place.git(&["config", "--local", "--list"]),
        )
    };
    let before = look();
    place.run_script(&script([whole_task()])).expect(0, &[]);
    assert_eq!(look(), before);
    place.git(&["fsck", "--strict", "--no-dangling"]);
}

/// The paths that a branch changes.
fn changed(place: &Place, branch: &str) -> Vec<String> {
    let names = place.git(&["diff", "--name-only", "main", branch]);
    names.lines().map(ToOwned::to_owned).collect()
}

#[rstest]
#[case::untracked(false)]
#[case::tracked(true)]
fn the_state_of_a_run_is_not_on_its_branch(#[case] tracked: bool) {
    let place = Place::new();
    if tracked {
        place.commit("Track the task");
    }
    let ended = place.run_script(&script([ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        run("git add -A && git commit -qm All"),
    ])]));
    ended.expect(0, &[]);
    assert_eq!(changed(&place, "ralph/t1/say-hello"), ["a.txt", "b.txt"]);
    if tracked {
        let task = fs::read_to_string(place.repo().join("ralph_task.md")).unwrap();
        assert_eq!(place.git(&["show", "ralph/t1/say-hello:ralph_task.md"]), task);
    }
}

#[test]
fn state_that_an_agent_commits_by_force_does_not_reach_the_pull_request() {
    let place = Place::new();
    let ended = place.run_script(&script([ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        run("git add -A -f && git commit -qm All"),
    ])]));
    ended.expect(0, &[]);
    let pull_request = pull_request(&ended);
    for path in [".ralph/notes.md", "ralph_task.md"] {
        assert!(
            !pull_request.contains(&format!("`{path}`: decides what runs later")),
            "{path} is in\n{pull_request}"
        );
    }
    assert!(pull_request.contains("`a.txt`"), "{pull_request}");
}

#[test]
fn a_change_to_a_policy_file_is_flagged_in_the_pull_request() {
    let place = Place::new();
    let ended = place.run_script(&script([ending([
        write("a.txt", "hello\n"),
        write("b.txt", "hello\n"),
        write("flake.nix", "{}\n"),
        write(".github/workflows/ci.yml", "on: push\n"),
        write("src/plain.rs", "\n"),
        commit("Change what runs"),
    ])]));
    ended.expect(0, &[]);
    let pull_request = pull_request(&ended);
    for path in ["flake.nix", ".github/workflows/ci.yml"] {
        assert!(
            pull_request.contains(&format!("\n- `{path}`: decides what runs later")),
            "{pull_request}"
        );
    }
    assert!(!pull_request.contains("plain.rs`: decides"), "{pull_request}");
}

fn pull_request(ended: &Ended) -> String {
    fs::read_to_string(ended.stdout.trim_end()).unwrap()
}

#[test]
fn a_rerun_gets_a_branch_of_its_own() {
    let place = Place::new();
    for _ in 0..3 {
        place.run_script(&script([whole_task()])).expect(0, &[]);
    }
    let branches = place.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/ralph"]);
    assert_eq!(
        branches.lines().collect::<Vec<_>>(),
        [
            "ralph/t1/say-hello",
            "ralph/t1/say-hello-v2",
            "ralph/t1/say-hello-v3"
        ]
    );
    let listed: Value = serde_json::from_str(&place.run(&["status", "--json"]).stdout).unwrap();
    let ids: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|row| row["run"].as_str())
        .collect();
    assert_eq!(ids.len(), 3);
    for id in ids {
        assert!(ralph::id::RunId::parse(id).is_ok(), "{id}");
    }
}

#[test]
fn a_repository_that_cannot_be_written_is_found_before_the_model_is_asked() {
    let place = Place::new();
    let ralph = place.scripted(&script([whole_task()]), &[]);
    let dir = place.repo().join(".git").display().to_string();
    let line = format!("mount --bind {dir} {dir} && mount -o remount,ro,bind {dir} && \"$@\"");
    let in_read_only = |program: &std::ffi::OsStr, args: &[&std::ffi::OsStr]| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "sh", "-c", &line, "sh"]);
        in_place_of(&mut command, &ralph);
        finish(command.arg(program).args(args))
    };
    let possible = in_read_only("true".as_ref(), &[]).code == Some(0);
    need!(possible.then_some(()).ok_or("this user cannot mount"));
    let args: Vec<_> = ralph.get_args().collect();
    in_read_only(ralph.get_program(), &args).expect_refused(&["cannot be written to: Read-only", "hint: "]);
    assert!(place.runs().is_empty());
}

#[rstest]
#[case::line_break(b"two\nlines")]
#[case::not_utf8(b"caf\xe9")]
fn a_repository_whose_path_cannot_be_written_down_is_refused_by_name(#[case] name: &[u8]) {
    let place = Place::new();
    let dir = place.path().join(std::ffi::OsStr::from_bytes(name));
    need!(fs::rename(place.repo(), &dir));
    let mut command = place.scripted(&script([whole_task()]), &[]);
    finish(command.current_dir(&dir)).expect_refused(&[
        "the path of the repository at \"",
        "is not UTF-8 or has a line break in it",
        "hint: move or rename the directory",
    ]);
    assert!(place.runs().is_empty());
}

#[test]
fn a_branch_in_the_way_is_reported_before_the_model_is_asked() {
    let place = Place::new();
    place.git(&["branch", "ralph"]);
    place.run_script(&script([whole_task()])).expect_refused(&[
        "the branch `ralph/t1/say-hello` cannot be created, because the branch `ralph` exists",
        "hint: rename it",
    ]);
    assert!(place.runs().is_empty());
    place.git(&["branch", "-D", "ralph"]);
    place.run_script(&script([whole_task()])).expect(0, &[]);
    assert_eq!(place.git(&["for-each-ref", "refs/ralph/branches"]), "");
}

#[test]
fn a_run_in_another_repository_takes_no_name_away() {
    let (here, there) = (Place::new(), Place::new());
    here.run_script(&script([whole_task()])).expect(0, &[]);
    let mut elsewhere = there.scripted(&script([whole_task()]), &[]);
    finish(elsewhere.env("RALPH_HOME", here.home())).expect(0, &[]);
    let branches = there.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads/ralph"]);
    assert_eq!(branches.trim(), "ralph/t1/say-hello");
}

#[test]
fn a_run_is_taken_up_with_the_settings_of_its_own_project_from_anywhere() {
    let (place, elsewhere) = (Place::new(), Place::new());
    for (place, name) in [(&place, "Its Own"), (&elsewhere, "Another")] {
        let config = std::fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
        place.write(
            "ralph.toml",
            &format!("{config}\n[git]\nuser_name = \"{name}\"\n"),
        );
    }
    let steps = script([doing([run("true")]), whole_task()]);
    finish(&mut place.scripted(&steps, &["--max-iterations", "1"])).expect(1, &[]);
    let mut resume = place.ralph(&["resume", &place.run_id(), "--set", "budget.max_iterations=3"]);
    finish(resume.current_dir(elsewhere.repo())).expect(0, &[]);
    let authors = place.git(&["log", "--format=%an", "main..ralph/t1/say-hello"]);
    assert_eq!(authors.trim(), "Its Own");
}

#[test]
fn commits_are_by_whom_the_configuration_says() {
    let place = Place::new();
    let args = [
        "--set",
        "git.user_name=Robot R.",
        "--set",
        "git.user_email=robot@example.org",
    ];
    finish(&mut place.scripted(&script([whole_task()]), &args)).expect(0, &[]);
    let author = place.git(&["log", "-1", "--format=%an <%ae> %cn <%ce>", "ralph/t1/say-hello"]);
    assert_eq!(
        author,
        "Robot R. <robot@example.org> Robot R. <robot@example.org>\n"
    );
}

#[test]
fn a_torn_line_is_repaired_on_resume_and_said() {
    let place = Place::new();
    let pause = doing([serde_json::json!({"type": "pause", "reason": "look"})]);
    place.run_script(&script([pause, whole_task()])).expect(3, &[]);
    for name in [
        "journal.jsonl",
        "ralph/activity.log",
        "ralph/errors.log",
        "events.jsonl",
    ] {
        let path = place.run_dir().join(name);
        let text = fs::read_to_string(&path).unwrap() + "torn {";
        fs::write(path, text).unwrap();
    }
    let ended = place.run(&["resume"]);
    ended.expect(
        0,
        &[
            "journal.jsonl: removed a torn last line of 6 bytes",
            "activity.log",
            "done: ",
        ],
    );
    for line in place.run(&["logs", "--json"]).stdout.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn a_full_disk_leaves_no_half_line_in_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    let disk = need!(SmallDisk::mount(&small, "256k"));
    let path = small.join("journal.jsonl");
    let (mut journal, _) = Journal::open(&path).unwrap();
    let mut append = |length: usize| {
        let name = "x".repeat(length);
        journal.append(Timestamp::UNIX_EPOCH, JournalEntry::Profile { name })
    };
    append(1).unwrap();
    let before = fs::read(&path).unwrap();
    let filler = disk.fill();
    // The rest of the page takes the beginning of a line that is longer than a page.
    let error = append(64 * 1024).unwrap_err();
    assert!(
        matches!(&error, StateError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{error:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::remove_file(filler).unwrap();
    append(2).unwrap();
    let read = Journal::read(&path).unwrap();
    assert_eq!(read, journal.lines());
    assert!(read.iter().map(|line| line.seq).eq([1, 2]), "{read:?}");
}
