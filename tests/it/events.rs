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
        at(|kind| matches!(kind, EventKind::Action { .. })),
        at(|kind| matches!(kind, EventKind::Output { text } if text == "seen")),
        at(|kind| matches!(kind, EventKind::IterationEnded { .. })),
        at(|kind| matches!(kind, EventKind::Checked { clean: true, .. })),
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
    assert_eq!(order[8], events.len() - 1);
    let iterations: Vec<u32> = events.iter().filter_map(|event| event.iteration).collect();
    assert!(iterations.is_sorted() && iterations.last() == Some(&2));

    let kept = std::fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
    assert_eq!(
        kept, ended.stdout,
        "the run's own log holds what the program was shown"
    );
}
