//! `ralph demo`: the first thing a new user sees.

use std::fs;

use ralph::event::{Event, EventKind, RunEnd};

use crate::support::ralph::Place;

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
