//! `ralph demo`: the first thing a new user sees.

use std::fs;

use ralph::event::{Event, EventKind, RunEnd};
use rstest::rstest;

use crate::need;
use crate::support::ralph::{Live, Place, eventually, finish};
use crate::support::small_disk::SmallDisk;

#[test]
fn the_demo_shows_a_wrong_fix_its_evidence_the_right_fix_and_a_pull_request() {
    let place = Place::bare();
    let temporary = place.path().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut command = place.ralph(&["demo"]);
    let ended = crate::support::ralph::finish(command.env("TMPDIR", &temporary));
    ended.expect(
        0,
        &[
            "SCRIPTED",
            "iteration 3",
            "evidence: `sh test.sh`: exit 1",
            "evidence: `sh test.sh`: exit 0",
            "done: ",
            "The commits of the pull request:",
            "| M1.2 The README shows how to call it | `",
        ],
    );
    assert!(
        ended.stdout.trim_end().ends_with("pull-request.md"),
        "{}",
        ended.stdout
    );
    let left: Vec<_> = fs::read_dir(&temporary).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(
        place.runs().is_empty(),
        "the demo keeps out of the user's own data"
    );
}

#[test]
fn a_kept_demo_is_where_it_says() {
    let place = Place::bare();
    let ended = place.run(&["demo", "--keep", "kept"]);
    let kept = place.repo().join("kept");
    ended.expect(0, &[kept.to_str().unwrap()]);

    let pull_request = fs::read_to_string(ended.stdout.trim_end()).unwrap();
    for part in [
        "# demo: convert degrees correctly",
        "- Branch: `ralph/demo/convert-degrees-correctly` into `main`",
        "**Verified: 2 of 2 checkboxes**, on commit `",
        "\n| M1.1 ",
        "\n| M1.2 ",
        "| `sh test.sh` | 0 | `",
    ] {
        assert!(pull_request.contains(part), "{part:?} is not in\n{pull_request}");
    }
    let project = kept.join("project");
    let git = |args: &[&str]| {
        let ended = place.git_in(&project, args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    };
    git(&["fsck", "--strict", "--no-dangling"]);
    let branch = git(&["rev-parse", "ralph/demo/convert-degrees-correctly"]);
    assert!(
        pull_request.contains(branch.trim_end()),
        "{branch} {pull_request}"
    );
    assert_eq!(git(&["branch", "--show-current"]), "main\n");
    assert!(kept.join("script.yaml").exists());
}

#[test]
fn a_demo_does_not_touch_a_directory_that_holds_something() {
    let place = Place::bare();
    place.write("mine/file", "precious\n");
    let ended = place.run(&["demo", "--keep", "mine"]);
    ended.expect_refused(&["is not empty", "hint: name a new directory"]);
    assert_eq!(fs::read_dir(place.repo().join("mine")).unwrap().count(), 1);
}

/// A demo whose first iteration waits until the file `go` is there.
fn held_demo(place: &Place, args: &[&str]) -> Live {
    let dir = place.path().display();
    let wait = format!("touch {dir}/held; while ! [ -e {dir}/go ]; do sleep 0.1; done");
    let shell = format!("case \"$*\" in 'convert.sh 0') {wait};; esac\nexec /bin/sh \"$@\"");
    fs::create_dir(place.path().join("tmp")).unwrap();
    let mut command = place.ralph(&[&["demo"], args].concat());
    command
        .env("PATH", place.path_with("sh", &shell))
        .env("TMPDIR", place.path().join("tmp"));
    let demo = Live::start(&mut command);
    eventually("the first command of the demo runs", || {
        place.path().join("held").exists()
    });
    demo
}

#[rstest]
#[case::once(&["INT"], "Stopping. This demo is removed; press Ctrl-C again to end at once.")]
#[case::twice(&["INT", "TERM"], "hint: `ralph demo` starts another one")]
fn an_interrupted_demo_names_no_run_that_is_removed(#[case] signals: &[&str], #[case] said: &str) {
    let place = Place::bare();
    let demo = held_demo(&place, &[]);
    for name in signals {
        demo.signal(name);
    }
    let ended = demo.wait();
    ended.expect(3, &[said]);
    assert!(!ended.stderr.contains("ralph resume"), "{ended:?}");
    let left: Vec<_> = fs::read_dir(place.path().join("tmp")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_interrupted_demo_that_is_kept_goes_on_where_it_says() {
    let place = Place::bare();
    let demo = held_demo(&place, &["--keep", "kept"]);
    demo.signal("INT");
    let home = place.repo().join("kept/ralph");
    let run = fs::read_dir(home.join("runs")).unwrap().next().unwrap().unwrap();
    let resume = format!(
        "RALPH_HOME={} ralph resume {}",
        home.display(),
        run.file_name().display()
    );
    let ended = demo.wait();
    ended.expect(
        3,
        &[&format!(
            "Stopping. `{resume}` continues it; press Ctrl-C again to end at once."
        )],
    );
    let last = ended.stderr.lines().last().unwrap();
    assert_eq!(last, format!("next: `{resume}` continues it"));
    assert!(!ended.stderr.contains("`ralph resume"), "{ended:?}");
    fs::write(place.path().join("go"), "").unwrap();
    let program = place.ralph(&[]).get_program().to_str().unwrap().to_owned();
    let resumed = finish(&mut place.shell(&resume.replace(" ralph ", &format!(" {program} "))));
    resumed.expect(0, &["done: "]);
}

#[test]
fn a_demo_without_room_on_the_disk_says_to_run_it_again() {
    let place = Place::bare();
    let temporary = place.path().join("tmp");
    let _disk = need!(SmallDisk::mount(&temporary, "16m"));
    let ended = finish(place.ralph(&["demo"]).env("TMPDIR", &temporary));
    ended.expect(
        1,
        &[
            "at least 64 MB are needed",
            "hint: free some disk space, then run `ralph demo` again",
        ],
    );
}

#[test]
fn a_demo_with_a_provider_that_does_not_exist_is_refused_first() {
    let ended = Place::bare().run(&["demo", "--type", "foo"]);
    ended.expect_refused(&["invalid value 'foo' for '--type <PROVIDER>'", "docker-sandbox"]);
    assert!(!ended.stderr.contains("SCRIPTED"), "{ended:?}");
}

#[test]
fn a_demo_without_a_temporary_directory_says_what_to_set() {
    let place = Place::bare();
    let mut command = place.ralph(&["demo"]);
    let ended = crate::support::ralph::finish(command.env("TMPDIR", place.path().join("missing")));
    ended.expect(
        1,
        &[
            "cannot create a temporary directory: ",
            "hint: set TMPDIR to a directory",
        ],
    );
}

#[test]
fn a_demo_for_programs_prints_events_and_nothing_else() {
    let ended = Place::bare().run(&["demo", "--json"]);
    ended.expect(0, &[]);
    let events: Vec<Event> = ended
        .json_lines()
        .into_iter()
        .map(|value| serde_json::from_value(value).unwrap())
        .collect();
    let last = &events.last().unwrap().kind;
    assert!(
        matches!(
            last,
            EventKind::RunEnded {
                outcome: RunEnd::Done,
                ..
            }
        ),
        "{last:?}"
    );
}
