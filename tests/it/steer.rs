//! Steering a run: signs, profiles, changes by hand; while it works, while it rests, and across `kill -9`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use ralph::state::{Intervention, Sign};
use ralph::{RunControl, Surroundings};
use rstest::rstest;
use serde_json::Value;

use crate::control::{Held, resting};
use crate::need;
use crate::support::ralph::Place;
use crate::support::skip;

const SIGN: [&str; 6] = [
    "sign",
    "small steps",
    "--trigger",
    "a large diff",
    "--instruction",
    "split it",
];

/// How often a text is in a run file.
fn count(place: &Place, file: &str, text: &str) -> usize {
    place.noted(file).matches(text).count()
}

/// What `ralph status` says of the requests to the only run.
fn requests(place: &Place) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let status = place.status();
    let rows = status["interventions"].as_array().unwrap().iter();
    rows.map(|row| (text(&row["state"]), text(&row["what"])))
        .collect()
}

fn is(state: &str, what: &str) -> (String, String) {
    (state.to_owned(), what.to_owned())
}

#[test]
fn a_sign_reaches_a_live_run_before_its_next_iteration() {
    let held = Held::start();
    held.ask(&SIGN);
    assert_eq!(requests(&held.place), [is("pending", "sign: small steps")]);
    held.let_go();
    held.live
        .wait()
        .expect(0, &["a person: sign: small steps", "done: "]);
    let prompt = held.place.noted("iterations/2/prompt.md");
    assert!(
        prompt.contains("### sign: small steps\n- trigger: a large diff\n- instruction: split it\n- added_after: iteration 1"),
        "{prompt}"
    );
    assert_eq!(requests(&held.place), [is("done", "sign: small steps")]);
}

#[test]
fn a_sign_survives_a_kill_between_request_and_application_and_is_added_once() {
    let held = Held::start();
    held.ask(&SIGN);
    held.live.signal("KILL");
    let Held { place, live } = held;
    assert_eq!(live.wait().code, None);
    let (request, kept) = (request_file(&place), place.path().join("request"));
    fs::copy(&request, &kept).unwrap();
    assert_eq!(requests(&place), [is("pending", "sign: small steps")]);
    fs::write(place.path().join("go"), "").unwrap();
    place.run(&["resume"]).expect(0, &["sign: small steps", "done: "]);
    assert!(!request.exists());
    assert_eq!(count(&place, "guardrails.md", "### sign: small steps"), 1);
}

/// The file of the only request that waits.
fn request_file(place: &Place) -> PathBuf {
    let files = fs::read_dir(place.run_dir().join("control")).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    files
        .find(|path| path.extension().is_some_and(|end| end == "json"))
        .unwrap()
}

#[test]
fn a_request_that_a_kill_left_in_the_inbox_after_its_checkpoint_is_not_carried_out_again() {
    let place = resting();
    place
        .run(&SIGN)
        .expect(0, &["for when it is continued: ", "next: `ralph resume "]);
    let (request, kept) = (request_file(&place), place.path().join("request"));
    fs::copy(&request, &kept).unwrap();
    // As if ralph was killed after the checkpoint and before it removed the file.
    place.run(&["resume"]).expect(0, &["sign: small steps", "done: "]);
    assert_eq!(count(&place, "guardrails.md", "### sign: small steps"), 1);

    let place = Place::new();
    let (pause, done) = (resting_answer(), crate::support::ralph::whole_task());
    let script = crate::support::ralph::script([pause.clone(), pause, done]);
    place.run_script(&script).expect(3, &[]);
    place.run(&SIGN).expect(0, &[]);
    let request = request_file(&place);
    fs::copy(&request, &kept).unwrap();
    place.run(&["resume"]).expect(3, &["sign: small steps"]);
    fs::copy(&kept, &request).unwrap();
    place.run(&["resume"]).expect(0, &["done: "]);
    assert_eq!(count(&place, "guardrails.md", "### sign: small steps"), 1);
    assert_eq!(requests(&place), [is("done", "sign: small steps")]);
    assert!(!request.exists());
}

/// An answer that asks for a person.
fn resting_answer() -> Value {
    crate::support::ralph::doing([serde_json::json!({"type": "pause", "reason": "look"})])
}

#[rstest]
#[case(&["sign", "n", "--trigger", " ", "--instruction", "i"], "the trigger of the sign is empty")]
#[case(&["sign", "n", "--trigger", "t", "--instruction", "a\nb"], "the instruction of the sign has more than one line")]
#[case(&["profile", "unheard-of"], "there is no model profile `unheard-of`")]
#[case(&["resume", "--set", "default_profile=unheard-of"], "unheard-of")]
#[case(&["resume", "--set", "git.branch_prefix=x"], "`git.branch_prefix` is fixed when a run is created")]
fn what_cannot_apply_is_refused_and_changes_nothing(#[case] args: &[&str], #[case] said: &str) {
    let place = resting();
    place.run(args).expect_refused(&[said]);
    assert_eq!(requests(&place), []);
    assert_eq!(place.status()["state"], "paused");
}

#[rstest]
#[case::by_command(&["profile", "strong-doctor"], &["resume"])]
#[case::by_setting(&[], &["resume", "--set", "default_profile=strong-doctor"])]
fn a_run_at_rest_goes_on_with_the_chosen_profile(#[case] before: &[&str], #[case] resume: &[&str]) {
    let place = resting();
    if !before.is_empty() {
        place.run(before).expect(0, &["profile strong-doctor"]);
    }
    place.run(resume).expect(
        0,
        &[
            "profile strong-doctor",
            "iteration 2 with strong-doctor",
            "done: ",
        ],
    );
    assert_eq!(requests(&place), [is("done", "profile strong-doctor")]);
}

#[test]
fn a_live_run_goes_on_with_the_chosen_profile_and_with_the_earlier_one_after_it() {
    let held = Held::with(|hold| {
        use crate::support::ralph::{doing, script, whole_task, write};
        script([doing([hold]), doing([write("b.txt", "b\n")]), whole_task()])
    });
    held.ask(&["profile", "strong-doctor", "--once"]);
    held.let_go();
    let ended = held.live.wait();
    ended.expect(0, &["iteration 2 with strong-doctor"]);
    let first = ended.stderr.split("iteration 1 with ").nth(1).unwrap();
    let first = first.split_whitespace().next().unwrap();
    assert_ne!(first, "strong-doctor");
    ended.expect(0, &[&format!("iteration 3 with {first}")]);
}

#[test]
fn what_is_appended_by_hand_at_rest_is_kept_and_used() {
    let place = resting();
    let append = |file: &str, text: &str| {
        let path = place.run_dir().join("ralph").join(file);
        fs::write(&path, fs::read_to_string(&path).unwrap() + text).unwrap();
    };
    append("guardrails.md", "\n### sign: by hand\n- trigger: t\n");
    append("notes.md", "\nmind the gap\n");
    place
        .run(&["resume"])
        .expect(0, &["a person, by hand: appended to guardrails.md", "done: "]);
    let prompt = place.noted("iterations/2/prompt.md");
    assert!(
        prompt.contains("### sign: by hand") && prompt.contains("mind the gap"),
        "{prompt}"
    );
    assert_eq!(count(&place, "guardrails.md", "### sign: by hand"), 1);
    assert_eq!(count(&place, "notes.md", "mind the gap"), 1);
}

#[test]
fn another_change_by_hand_is_warned_about_and_kept_beside() {
    let place = resting();
    let notes = place.run_dir().join("ralph/notes.md");
    let before = fs::read_to_string(&notes).unwrap();
    fs::write(&notes, "all new\n").unwrap();
    place.run(&["resume"]).expect(
        0,
        &["`notes.md` was changed by hand", "notes.md.by-hand", "done: "],
    );
    let kept = place.run_dir().join("notes.md.by-hand");
    assert_eq!(fs::read_to_string(kept).unwrap(), "all new\n");
    assert!(fs::read_to_string(&notes).unwrap().starts_with(&before));
}

#[test]
fn what_is_appended_by_hand_while_the_run_works_is_used_too() {
    let held = Held::start();
    let notes = held.place.run_dir().join("ralph/notes.md");
    fs::write(&notes, fs::read_to_string(&notes).unwrap() + "mind the gap\n").unwrap();
    held.let_go();
    held.live.wait().expect(0, &["done: "]);
    assert!(
        held.place
            .noted("iterations/2/prompt.md")
            .contains("mind the gap")
    );
}

#[test]
fn a_run_is_named_by_its_id_the_beginning_of_its_id_or_its_task() {
    let place = resting();
    let id = place.run_id();
    let task = fs::read_to_string(place.repo().join("ralph_task.md")).unwrap();
    let task_id = task.split("task_id: ").nth(1).unwrap().lines().next().unwrap();
    for name in [id.as_str(), &id[..4], task_id] {
        place.run(&["status", name]).expect(0, &[]);
        place.run(&["note", name, "a note"]).expect(0, &[&id]);
        let queued = place.run(&["submit", "--run", name]);
        assert_eq!(queued.expect(0, &["Queued."]).stdout.trim_end(), id);
    }
    place
        .run(&["status", "unheard-of"])
        .expect_refused(&["no run is named `unheard-of`", "hint: "]);
    let script = crate::support::ralph::script([crate::support::ralph::whole_task()]);
    place.run_script(&script).expect(0, &["done: "]);
    let newest = place.run(&["status", task_id, "--json"]).stdout;
    assert!(!newest.contains(&id), "{newest}");
    place
        .run(&["status", &format!("{task_id}-v3")])
        .expect_refused(&["no run is named"]);
    let second = place.run(&["status", &format!("{task_id}-v2"), "--json"]).stdout;
    assert_eq!(second, newest);
    place
        .run(&["status", "r"])
        .expect_refused(&["is the beginning of several ids", &id]);
}

#[test]
fn a_program_steers_a_run_through_the_library() {
    let place = resting();
    let env = [
        ("RALPH_HOME", place.home().display().to_string()),
        ("PATH", std::env::var("PATH").unwrap()),
        ("USER", "someone".to_owned()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value));
    let control = RunControl::new(Surroundings::new(env.into(), place.repo()));
    let run = control.find(&place.run_id()).unwrap();
    let sign = Sign {
        name: "small steps".to_owned(),
        trigger: "a large diff".to_owned(),
        instruction: "split it".to_owned(),
        evidence: None,
    };
    control.intervene(&run, Intervention::Sign(sign)).unwrap();
    assert!(
        control
            .intervene(&run, Intervention::Stop)
            .unwrap_err()
            .to_string()
            .contains("is not live")
    );
    place.run(&["resume"]).expect(0, &["someone: sign: small steps"]);
}

/// The task of a place with another text in it.
fn changed_task(place: &Place, from: &str, to: &str) -> String {
    let task = fs::read_to_string(place.repo().join("ralph_task.md")).unwrap();
    assert!(task.contains(from), "{task}");
    let file = place.path().join("edited.md");
    fs::write(&file, task.replace(from, to)).unwrap();
    file.display().to_string()
}

#[test]
fn an_edit_of_a_live_run_counts_before_its_next_iteration() {
    let held = Held::start();
    let file = changed_task(&held.place, "# Say hello", "# Say hello loudly");
    held.ask(&["edit", "--file", &file]);
    assert_eq!(requests(&held.place), [is("pending", "edited task")]);
    held.let_go();
    held.live.wait().expect(0, &["a person: edited task", "done: "]);
    assert!(
        held.place
            .noted("iterations/2/prompt.md")
            .contains("# Say hello loudly")
    );
    assert_eq!(held.place.status()["task"], "Say hello loudly");
}

#[test]
fn an_edit_survives_a_kill_between_request_and_application() {
    let held = Held::start();
    let file = changed_task(&held.place, "# Say hello", "# Say hello loudly");
    held.ask(&["edit", "--file", &file]);
    held.live.signal("KILL");
    let Held { place, live } = held;
    assert_eq!(live.wait().code, None);
    fs::write(place.path().join("go"), "").unwrap();
    place.run(&["resume"]).expect(0, &["edited task", "done: "]);
    assert!(
        place
            .noted("iterations/1/prompt.md")
            .contains("# Say hello loudly")
    );
    assert_eq!(requests(&place), [is("done", "edited task")]);
}

#[rstest]
#[case::findings("max_iterations: 6\n", "max_iterations: none\n", &["max_iterations"])]
#[case::fixed("task_id: t1", "task_id: t2", &["`task_id` cannot change after a run was created"])]
#[case::provider("task_id: t1", "task_id: t1\nsandbox_provider: docker", &["`sandbox_provider` cannot change"])]
#[case::profile("task_id: t1", "task_id: t1\nmodel_profile_default: none-such", &["none-such"])]
fn an_edit_that_is_refused_changes_nothing(#[case] from: &str, #[case] to: &str, #[case] said: &[&str]) {
    let place = resting();
    let file = changed_task(&place, from, to);
    place.run(&["edit", "--file", &file]).expect_refused(said);
    assert_eq!(requests(&place), []);
}

#[test]
fn an_edit_that_a_flag_wins_over_is_refused() {
    let place = Place::new();
    let answer = crate::support::ralph::script([resting_answer()]);
    let run = crate::support::ralph::finish(&mut place.scripted(&answer, &["--max-iterations", "4"]));
    run.expect(3, &[]);
    let file = changed_task(&place, "max_iterations: 6", "max_iterations: 9");
    place.run(&["edit", "--file", &file]).expect_refused(&[
        "`budget.max_iterations` of the task cannot apply",
        "given when the run was created",
    ]);
}

#[test]
fn an_edit_at_rest_is_read_from_stdin_and_used_by_the_resume() {
    let place = resting();
    let file = changed_task(&place, "max_iterations: 6", "max_iterations: 1");
    let mut command = place.ralph(&["edit"]);
    crate::support::ralph::finish(command.stdin(fs::File::open(&file).unwrap())).expect(0, &["edited task"]);
    place
        .run(&["resume", "--set", "budget.max_iterations=9"])
        .expect_refused(&["an edit of the task waits"]);
    place
        .run(&["resume"])
        .expect(1, &["the one iteration is spent (max_iterations)"]);
    let file = changed_task(&place, "max_iterations: 6", "max_iterations: 9");
    place.run(&["edit", "--file", &file]).expect(0, &[]);
    place.run(&["resume"]).expect(0, &["done: "]);
}

#[test]
fn an_edit_from_an_empty_stdin_says_so() {
    let place = resting();
    let mut command = place.ralph(&["edit"]);
    crate::support::ralph::finish(command.stdin(std::process::Stdio::null())).expect_refused(&[
        "ralph: standard input is empty, so there is no text for the task\n",
        "hint: give it with `--file FILE`, or edit it at a terminal\n",
    ]);
    assert_eq!(requests(&place), []);
}

#[rstest]
#[case::changes_a_budget("sed -i 's/max_iterations: 6/max_iterations: 1/' \"$1\"", 0, "edited task")]
#[case::fails_after_a_change("echo >>\"$1\"; exit 1", 1, "nothing was changed")]
#[case::changes_nothing("cat \"$1\" >/dev/null", 0, "The task is the same: nothing to change.")]
#[case::breaks_the_task("echo '---' >\"$1\"", 2, "the frontmatter is never closed")]
fn an_edit_opens_the_editor_of_a_person(#[case] editor: &str, #[case] code: i32, #[case] said: &str) {
    let script = need!(skip::program("script"));
    let place = resting();
    let file = place.path().join("my editor");
    fs::write(
        &file,
        format!("#!/bin/sh\n[ -t 0 ] && [ \"$0\" != \"$1\" ] || exit 3\n{editor}\n"),
    )
    .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = place.on_terminal(&script, "", &["edit", &place.run_id()]);
    command.env("EDITOR", format!("'{}'", file.display()));
    let ended = crate::support::ralph::finish(&mut command);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.stdout.contains(said), "{ended:?}");
    if said == "edited task" {
        assert_eq!(requests(&place), [is("pending", "edited task")]);
        place
            .run(&["resume"])
            .expect(1, &["the one iteration is spent (max_iterations)"]);
    } else {
        assert_eq!(requests(&place), []);
    }
}

#[test]
fn an_edit_without_an_editor_says_what_to_set() {
    let script = need!(skip::program("script"));
    let place = resting();
    let ended = crate::support::ralph::finish(&mut place.on_terminal(&script, "", &["edit"]));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stdout.contains("no editor is set") && ended.stdout.contains("set EDITOR"),
        "{ended:?}"
    );
}

#[test]
fn a_retry_of_a_live_run_takes_its_newest_work_back() {
    use crate::support::ralph::{commit, doing, script, whole_task, write};
    let held = Held::with(|hold| {
        let junk = doing([write("junk.txt", "junk\n"), commit("Junk"), hold]);
        script([doing([write("c.txt", "c\n"), commit("C")]), junk, whole_task()])
    });
    held.place
        .run(&["retry", "--from", "5"])
        .expect_refused(&["there is no iteration 5 to go back to"]);
    held.ask(&["retry", "--from", "0"]);
    held.let_go();
    held.live
        .wait()
        .expect(0, &["retry from the beginning", "done: "]);
    let branch = held.place.status()["branch"].as_str().unwrap().to_owned();
    let files = held.place.git(&["ls-tree", "--name-only", &branch]);
    assert!(!files.contains("junk.txt") && !files.contains("c.txt"), "{files}");
    assert_eq!(held.place.status()["iterations"], 3);
}

#[test]
fn a_retry_at_rest_goes_back_to_the_last_good_iteration() {
    use crate::support::ralph::{commit, doing, script, whole_task, write};
    let place = Place::new();
    let bad = doing([
        write("broken", "x\n"),
        commit("Break it"),
        serde_json::json!({"type": "pause", "reason": "look"}),
    ]);
    let script = script([doing([write("c.txt", "c\n"), commit("C")]), bad, whole_task()]);
    place.run_script(&script).expect(3, &[]);
    place.run(&["retry"]).expect(0, &["retry from iteration 1"]);
    place
        .run(&["resume"])
        .expect(0, &["retry from iteration 1", "done: "]);
    let branch = place.status()["branch"].as_str().unwrap().to_owned();
    let files = place.git(&["ls-tree", "--name-only", &branch]);
    assert!(files.contains("c.txt") && !files.contains("broken"), "{files}");
}

#[test]
fn a_run_is_removed_whole_and_a_live_one_is_not() {
    let held = Held::start();
    let id = held.place.run_id();
    held.place.run(&["rm", &id]).expect(1, &["is being worked on by"]);
    held.place
        .run(&["prune", "--older-than", "0s"])
        .expect(0, &["No run at rest is that old: nothing to remove."]);
    held.let_go();
    let Held { place, live } = held;
    live.wait().expect(0, &["done: "]);
    let branch = place.status()["branch"].as_str().unwrap().to_owned();
    assert!(!place.git(&["for-each-ref", "refs/ralph"]).is_empty());
    place
        .run(&["rm", &id[..5]])
        .expect(0, &[&format!("Removed run {id}.")]);
    assert_eq!(place.git(&["for-each-ref", "refs/ralph"]), "");
    assert!(place.runs().is_empty());
    assert!(!place.git(&["rev-parse", &branch]).is_empty(), "the branch stays");
    place.run(&["rm", &id]).expect_refused(&["no run"]);
}

#[test]
fn a_run_whose_journal_cannot_be_read_is_removed_whole() {
    let place = resting();
    let id = place.run_id();
    fs::write(place.run_dir().join("journal.jsonl"), "{}\n").unwrap();
    let ended = place.run(&["rm", &id]);
    ended.expect(0, &[&format!("Removed run {id}.")]);
    assert!(!ended.stderr.contains("cannot be determined"), "{ended:?}");
    assert!(place.runs().is_empty());
    assert_eq!(place.git(&["for-each-ref", "refs/ralph"]), "");
}

#[test]
fn a_run_whose_configuration_cannot_be_read_is_removed_with_a_word_about_its_sandbox() {
    let place = resting();
    let id = place.run_id();
    place.write("ralph.toml", "[sandbox\n");
    place.run(&["rm", &id]).expect(
        0,
        &[
            &format!("the provider and the state remote of run `{id}` cannot be determined"),
            "ralph.toml",
            &format!("Removed run {id}."),
        ],
    );
    assert!(place.runs().is_empty());
    assert_eq!(place.git(&["for-each-ref", "refs/ralph"]), "");
}

#[test]
fn a_run_whose_facts_cannot_be_read_is_removed_and_what_stays_is_named() {
    let place = resting();
    let id = place.run_id();
    fs::write(place.run_dir().join("run.json"), "{").unwrap();
    place.run(&["rm", &id]).expect(
        0,
        &[
            "run.json",
            &format!("refs below `refs/ralph/{id}/` stay"),
            &format!("Removed run {id}."),
        ],
    );
    assert!(place.runs().is_empty());
    assert!(!place.git(&["for-each-ref", "refs/ralph"]).is_empty());
    place.run(&["rm", &id]).expect_refused(&["no run"]);
}

#[test]
fn old_runs_are_pruned() {
    let place = resting();
    let id = place.run_id();
    place
        .run(&["prune", "--older-than", "1d"])
        .expect(0, &["No run at rest is that old: nothing to remove."]);
    let shown = place.run(&["prune", "--older-than", "0s", "--dry-run"]);
    assert_eq!(shown.expect(0, &["Would remove 1 run."]).stdout.trim(), id);
    assert_eq!(place.runs().len(), 1);
    place
        .run(&["prune", "--older-than", "0s"])
        .expect(0, &["Removed 1 run."]);
    assert!(place.runs().is_empty());
    assert_eq!(place.git(&["for-each-ref", "refs/ralph"]), "");
}

#[test]
fn a_resume_with_a_note_answers_an_agent_that_asks() {
    let place = resting();
    place
        .run(&["resume", "--note", "the answer is yes"])
        .expect(0, &["note: the answer is yes", "done: "]);
    assert!(
        place
            .noted("iterations/2/prompt.md")
            .contains("the answer is yes")
    );
}

/// A resting run whose diagnosis waits for a person.
fn diagnosed() -> Place {
    let place = resting();
    let config = fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    place.write("ralph.toml", &format!("{config}[doctor]\napply = 'wait'\n"));
    let said = place.run(&["doctor", &place.run_id()]);
    said.expect(0, &[]);
    for part in [
        "Failure patterns:\n- it asks too early",
        "Likely root causes:\n- the task does not say how",
        "### sign: try",
        "```diff\n-# Say hello\n+# Say hello twice\n```",
        "Profile: strong-doctor",
    ] {
        assert!(said.stdout.contains(part), "{part} in {}", said.stdout);
    }
    assert_eq!(count(&place, "guardrails.md", "### sign: try"), 0);
    place
}

const PARTS: [&str; 3] = ["sign: try", "edited task", "profile strong-doctor"];

#[rstest]
#[case::all(&[], &PARTS)]
#[case::signs(&["--signs"], &PARTS[..1])]
#[case::spec_and_profile(&["--spec", "--profile"], &PARTS[1..])]
fn a_diagnosis_that_waits_is_applied_once(#[case] parts: &[&str], #[case] applied: &[&str]) {
    let place = diagnosed();
    let id = place.run_id();
    let apply = [&["doctor", &id, "--apply"], parts].concat();
    place.run(&apply).expect(0, applied);
    place.run(&apply).expect(0, &["is left to apply"]);
    let pending: Vec<_> = applied.iter().map(|what| is("pending", what)).collect();
    assert_eq!(requests(&place), pending);
    place.run(&["resume"]).expect(0, applied);
    let done: Vec<_> = applied.iter().map(|what| is("done", what)).collect();
    assert_eq!(requests(&place), done);
    let prompt = place.noted("iterations/2/prompt.md");
    let has = |part: &&str| applied.contains(part);
    assert_eq!(
        prompt.contains("### sign: try\n- trigger: a question\n- instruction: Try first.\n- added_after: iteration 1\n- evidence: it asked"),
        has(&PARTS[0])
    );
    assert_eq!(prompt.contains("# Say hello twice"), has(&PARTS[1]), "{prompt}");
    let events = fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
    assert_eq!(events.contains(r#""profile":"strong-doctor""#), has(&PARTS[2]));
}

#[test]
fn what_a_diagnosis_proposes_is_refused_whole_when_the_task_has_changed() {
    let place = diagnosed();
    let file = changed_task(&place, "# Say hello", "# Say goodbye");
    place.run(&["edit", "--file", &file]).expect(0, &[]);
    let id = place.run_id();
    let apply = ["doctor", &id, "--apply"];
    place
        .run(&apply)
        .expect_refused(&["does not fit the task: 0 occurrences of `# Say hello`"]);
    assert_eq!(requests(&place), [is("pending", "edited task")]);
    place
        .run(&["doctor", "env", "--apply"])
        .expect_refused(&["needs a run"]);
    let other = resting();
    let id = other.run_id();
    let apply = ["doctor", &id, "--apply"];
    other
        .run(&apply)
        .expect_refused(&["there is no diagnosis of run"]);
}

#[test]
fn a_diagnosis_that_was_applied_by_itself_leaves_only_the_edit_to_a_person() {
    let place = resting();
    let id = place.run_id();
    place.run(&["doctor", &id]).expect(0, &[]);
    assert_eq!(count(&place, "guardrails.md", "### sign: try"), 1);
    place.run(&["doctor", &id, "--apply"]).expect(0, &["edited task"]);
    assert_eq!(requests(&place), [is("pending", "edited task")]);
    place
        .run(&["resume"])
        .expect(0, &["iteration 2 with strong-doctor", "done: "]);
    assert_eq!(count(&place, "guardrails.md", "### sign: try"), 1);
    assert_eq!(place.status()["task"], "Say hello twice");
}

/// The requests of a diagnosis that is applied, for a run that it is at work, and after it was killed before it saw them.
#[rstest]
#[case::live(false)]
#[case::killed(true)]
fn a_diagnosis_is_applied_to_a_run_at_work(#[case] is_killed: bool) {
    let held = Held::diagnosed();
    let id = held.place.run_id();
    let apply = ["doctor", &id, "--apply"];
    let place = if is_killed {
        let place = killed_after(held, &apply);
        place.run(&apply).expect(0, &["is left to apply"]);
        place.run(&["resume"]).expect(0, &["done: "]);
        place
    } else {
        held.ask(&apply);
        held.let_go();
        let Held { place, live } = held;
        live.wait().expect(0, &["a person: sign: try", "done: "]);
        place
    };
    assert_eq!(
        requests(&place),
        [is("done", "sign: try"), is("done", "edited task")]
    );
    assert_eq!(count(&place, "guardrails.md", "### sign: try"), 1);
    assert_eq!(place.status()["task"], "Say hello twice");
}

/// Kills a run that is at work in its first iteration, after it was asked for something that it has not seen yet.
fn killed_after(held: Held, args: &[&str]) -> Place {
    held.live.signal("STOP");
    held.ask(args);
    held.live.signal("KILL");
    let Held { place, live } = held;
    assert_eq!(live.wait().code, None);
    fs::write(place.path().join("go"), "").unwrap();
    place
}

#[test]
fn a_profile_survives_a_kill_between_request_and_application() {
    let place = killed_after(Held::start(), &["profile", "strong-doctor", "--once"]);
    let ended = place.run(&["resume"]);
    ended.expect(
        0,
        &[
            "profile strong-doctor",
            "iteration 1 with strong-doctor",
            "done: ",
        ],
    );
    assert!(
        !ended.stderr.contains("iteration 2 with strong-doctor"),
        "{ended:?}"
    );
    assert_eq!(
        requests(&place),
        [is("done", "profile strong-doctor for one iteration")]
    );
}

#[test]
fn a_retry_survives_a_kill_between_request_and_application() {
    use crate::support::ralph::{commit, doing, script, whole_task, write};
    let held = Held::with(|hold| {
        let first = doing([write("c.txt", "c\n"), commit("C")]);
        script([first, doing([hold]), whole_task()])
    });
    let place = killed_after(held, &["retry", "--from", "0"]);
    place
        .run(&["resume"])
        .expect(0, &["retry from the beginning", "done: "]);
    let branch = place.status()["branch"].as_str().unwrap().to_owned();
    let files = place.git(&["ls-tree", "--name-only", &branch]);
    assert!(!files.contains("c.txt") && files.contains("b.txt"), "{files}");
    assert_eq!(count(&place, "notes.md", "was taken back"), 1);
    assert_eq!(requests(&place), [is("done", "retry from the beginning")]);
}

#[rstest]
#[case(&["profile", "strong-doctor", "--once"], "profile strong-doctor for one iteration")]
#[case(&["retry", "--from", "0"], "retry from the beginning")]
fn a_request_that_is_left_again_after_it_was_carried_out_does_nothing(
    #[case] args: &[&str],
    #[case] what: &str,
) {
    let place = Place::new();
    let pause = resting_answer();
    let script = crate::support::ralph::script([pause.clone(), pause, crate::support::ralph::whole_task()]);
    place.run_script(&script).expect(3, &[]);
    place.run(args).expect(0, &[]);
    let (request, kept) = (request_file(&place), place.path().join("request"));
    fs::copy(&request, &kept).unwrap();
    place.run(&["resume"]).expect(3, &[what]);
    fs::copy(&kept, &request).unwrap();
    let ended = place.run(&["resume"]);
    ended.expect(0, &["done: "]);
    assert!(!ended.stderr.contains(what) && !ended.stderr.contains("iteration 3 with strong-doctor"));
    assert_eq!(requests(&place), [is("done", what)]);
    assert!(!request.exists());
    let taken_back = usize::from(args[0] == "retry");
    assert_eq!(count(&place, "notes.md", "was taken back"), taken_back);
}

#[test]
fn a_removal_that_is_killed_at_any_moment_is_finished_by_the_next() {
    use crate::support::ralph::Live;
    for milliseconds in [0, 20, 60, 120, 200] {
        let place = resting();
        let id = place.run_id();
        let live = Live::start(&mut place.ralph(&["rm", &id]));
        std::thread::sleep(std::time::Duration::from_millis(milliseconds));
        live.signal("KILL");
        live.wait();
        // Either the run is still there and can be removed, or it is gone; the next removal clears what is left of it.
        if place.run(&["status"]).stdout.contains(&id) {
            place.run(&["rm", &id]).expect(0, &["Removed run"]);
        }
        place.run(&["rm", &id]).expect_refused(&["no run"]);
        let script = crate::support::ralph::script([crate::support::ralph::whole_task()]);
        place.run_script(&script).expect(0, &["done: "]);
        place
            .run(&["prune", "--older-than", "0s"])
            .expect(0, &["Removed 1 run."]);
        assert!(place.runs().is_empty());
        assert_eq!(place.git(&["for-each-ref", "refs/ralph"]), "");
    }
}
