//! `ralph run --json`: events for programs, one object a line.

use ralph::event::{Event, EventKind, RunEnd};

use crate::support::ralph::{Place, commit, doing, finish, run, script, whole_task, write};

#[test]
fn a_run_prints_its_events_in_order_and_nothing_else() {
    let place = Place::new();
    let wrong = doing([write("a.txt", "hullo\n"), run("echo seen"), commit("Try")]);
    let ended = finish(&mut place.scripted(&script([wrong, whole_task()]), &["--json"]));
    ended.expect(0, &[]);
    let events: Vec<Event> = ended
        .json_lines()
        .into_iter()
        .map(|value| serde_json::from_value(value).unwrap())
        .collect();
    assert!(events.windows(2).all(|pair| pair[0].at <= pair[1].at));
    assert!(
        events
            .iter()
            .all(|event| event.run.as_str() == place.run_id().as_str())
    );

    let at = |wanted: fn(&EventKind) -> bool| {
        let found = events.iter().position(|event| wanted(&event.kind));
        found.unwrap_or_else(|| panic!("{events:#?}"))
    };
    assert_eq!(at(|kind| matches!(kind, EventKind::RunStarted { .. })), 0);
    let order = [
        at(|kind| matches!(kind, EventKind::IterationStarted { .. })),
        at(|kind| matches!(kind, EventKind::ModelAnswered { .. })),
        at(|kind| matches!(kind, EventKind::ActionStarted { .. })),
        at(|kind| matches!(kind, EventKind::Action { seconds: Some(_), .. })),
        at(|kind| matches!(kind, EventKind::Output { text } if text == "seen")),
        at(|kind| matches!(kind, EventKind::LoopScored { .. })),
        at(|kind| matches!(kind, EventKind::IterationEnded { .. })),
        at(|kind| matches!(kind, EventKind::EvidenceStarted { commands, .. } if commands.len() == 3)),
        at(|kind| matches!(kind, EventKind::Checked { clean: true, .. })),
        at(|kind| matches!(kind, EventKind::EvidenceEnded { passed: true, .. })),
        at(|kind| matches!(kind, EventKind::Ticked { .. })),
        at(|kind| matches!(kind, EventKind::PullRequest { .. })),
        at(|kind| {
            matches!(
                kind,
                EventKind::RunEnded {
                    outcome: RunEnd::Done,
                    ..
                }
            )
        }),
    ];
    assert!(order.is_sorted(), "{order:?} in {events:#?}");
    assert_eq!(order[12], events.len() - 1);
    let iterations: Vec<u32> = events.iter().filter_map(|event| event.iteration).collect();
    assert!(iterations.is_sorted() && iterations.last() == Some(&2));

    let kept = std::fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
    assert_eq!(
        kept, ended.stdout,
        "the run's own log holds what the program was shown"
    );
}

#[test]
fn the_activity_log_has_a_line_for_each_action_command_score_and_decision() {
    let place = Place::new();
    let secret = "sk-0123456789abcdef0123456789";
    let wrong = doing([
        write("a.txt", "hullo\n"),
        commit("Try"),
        run(&format!("false {secret}")),
    ]);
    let mut ralph = place.scripted(&script([wrong, whole_task()]), &[]);
    finish(ralph.env("OPENAI_API_KEY", secret)).expect(0, &[]);
    let log = place.noted("activity.log");
    let mut rest = log.as_str();
    for part in [
        "iteration 1 began with profile ",
        "model ",
        "action: write: a.txt",
        ": ok, ",
        "action: commit",
        "action: run",
        "exit 1, ",
        "feedback: `sh test.sh`: exit 0, ",
        "loop score 0.00: committed -0.2",
        "decision: go on with ",
        "iteration 1 ended: ",
        " s, ",
        "evidence: `grep -q hello a.txt`: exit 0, ",
        "loop score 0.00: ",
        "checkbox_verified -1",
        "decision: complete",
        "iteration 2 ended: ",
        "pull request: ",
        "the run ended: done",
    ] {
        let (_, after) = rest
            .split_once(part)
            .unwrap_or_else(|| panic!("no {part:?} in\n{rest}\nof\n{log}"));
        rest = after;
    }
    assert!(!log.contains(secret), "{log}");
}

#[test]
fn a_share_of_a_budget_is_reported_once_also_across_a_resume() {
    let place = Place::new();
    let pause = doing([serde_json::json!({"type": "pause", "reason": "look"})]);
    let answers = script([pause.clone(), doing([]), pause, whole_task()]);
    place.run_script(&answers).expect(3, &[]);
    place
        .run(&["resume"])
        .expect(3, &["budget: 50 % of max_iterations is used: 3 of 6"]);
    place.run(&["resume"]).expect(0, &["done: "]);
    let text = std::fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
    let warnings: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("budget_warning"))
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(r#""budget":"max_iterations","percent":50,"used":"3","limit":"6""#));
}
