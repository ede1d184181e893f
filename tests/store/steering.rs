//! Requests of people and mirrored events of a run that changes hands.

use jiff::Timestamp;
use ralph::RunOutcomeKind;
use ralph::state::{Intervention, InterventionRequest};
use ralph::store::{EventFile, EventPosition, LeaseState, QueueClaim, Store};
use ralph::usage::Usd;

use crate::database::{Database, claim, run, submission};
use crate::on_both;

on_both!(
    a_worker_that_lost_the_run_marks_no_request,
    what_was_asked_before_the_end_is_not_asked_again,
    a_worker_that_lost_the_run_mirrors_no_event,
    a_file_of_events_is_mirrored_from_where_it_was_left,
    a_batch_of_events_is_added_once_and_in_order,
);

/// A run that a worker lost to another one, with both claims.
async fn lost_run(database: &Database) -> (Store, [QueueClaim; 2]) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    let zombie = claim(&store, "a").await.unwrap();
    database.jump(31).await;
    let owner = claim(&store, "b").await.unwrap();
    (store, [zombie, owner])
}

async fn ask(store: &Store, text: &str) -> InterventionRequest {
    let note = Intervention::Note { text: text.into() };
    let request = InterventionRequest::new(note, "a person".to_owned(), Timestamp::now());
    store.leave_intervention(&run(1), &request).await.unwrap();
    request
}

/// The ids of the requests for a worker, and whether an earlier one had them.
async fn asked_of(store: &Store, claim: &QueueClaim) -> Vec<(String, bool)> {
    let waiting = store.interventions_for(claim).await.unwrap().into_iter();
    waiting
        .map(|waiting| (waiting.asked.id, waiting.was_moved))
        .collect()
}

async fn a_worker_that_lost_the_run_marks_no_request(database: Database) {
    let (store, [zombie, owner]) = lost_run(&database).await;
    let note = ask(&store, "blue").await;
    store.intervention_moved(&zombie, &note.id).await.unwrap();
    assert_eq!(asked_of(&store, &owner).await, [(note.id.clone(), false)]);
    store.intervention_moved(&owner, &note.id).await.unwrap();
    assert_eq!(asked_of(&store, &owner).await, []);
    // The host of that worker may be gone with it.
    database.jump(31).await;
    let next = claim(&store, "c").await.unwrap();
    assert_eq!(asked_of(&store, &next).await, [(note.id, true)]);
}

async fn what_was_asked_before_the_end_is_not_asked_again(database: Database) {
    let (store, [_, owner]) = lost_run(&database).await;
    let moved = ask(&store, "blue").await;
    store.intervention_moved(&owner, &moved.id).await.unwrap();
    let waiting = ask(&store, "red").await;
    let ended = store.finish(&owner, RunOutcomeKind::Paused, "", Usd::ZERO).await;
    assert_eq!(ended.unwrap(), LeaseState::Held);
    assert!(store.requeue(&run(1)).await.unwrap());
    let next = claim(&store, "c").await.unwrap();
    assert_eq!(asked_of(&store, &next).await, [(waiting.id, false)]);
}

fn file(mirrored: u64) -> EventFile {
    EventFile {
        name: "here:/events.jsonl".into(),
        mirrored,
    }
}

async fn events(store: &Store) -> Vec<(u64, u64, String)> {
    let events = store.events(&run(1), EventPosition::default(), 100).await;
    let events = events.unwrap().into_iter();
    events
        .map(|(position, event)| (position.epoch, position.number, event))
        .collect()
}

async fn a_worker_that_lost_the_run_mirrors_no_event(database: Database) {
    let (store, [zombie, owner]) = lost_run(&database).await;
    let texts = ["{}".to_owned()];
    let added = store.add_events(&zombie, 1, &texts, &file(3)).await;
    assert_eq!(added.unwrap(), LeaseState::Lost);
    assert_eq!(events(&store).await, []);
    assert_eq!(store.mirrored_events(&run(1), &file(0).name).await.unwrap(), 0);
    let added = store.add_events(&owner, 1, &texts, &file(3)).await;
    assert_eq!(added.unwrap(), LeaseState::Held);
    assert_eq!(events(&store).await, [(2, 1, "{}".to_owned())]);
}

async fn a_file_of_events_is_mirrored_from_where_it_was_left(database: Database) {
    let (store, [_, owner]) = lost_run(&database).await;
    let name = file(0).name;
    assert_eq!(store.mirrored_events(&run(1), &name).await.unwrap(), 0);
    for end in [3, 9] {
        let added = store
            .add_events(&owner, end, &["{}".to_owned()], &file(end))
            .await;
        assert_eq!(added.unwrap(), LeaseState::Held);
        assert_eq!(store.mirrored_events(&run(1), &name).await.unwrap(), end);
    }
    assert_eq!(store.mirrored_events(&run(1), "there:/x").await.unwrap(), 0);
    let ended = store.finish(&owner, RunOutcomeKind::Done, "", Usd::ZERO).await;
    assert_eq!(ended.unwrap(), LeaseState::Held);
    database.jump(60).await;
    assert_eq!(store.remove_ended(std::time::Duration::ZERO).await.unwrap(), 1);
    assert_eq!(store.mirrored_events(&run(1), &name).await.unwrap(), 0);
}

async fn a_batch_of_events_is_added_once_and_in_order(database: Database) {
    let (store, [_, owner]) = lost_run(&database).await;
    let texts: Vec<String> = (1..=150).map(|number| format!("{{\"n\":{number}}}")).collect();
    // The answer to the first try was lost, and the second one has more.
    for end in [100, 150] {
        let added = store
            .add_events(&owner, 1, &texts[..end], &file(end as u64))
            .await;
        assert_eq!(added.unwrap(), LeaseState::Held);
    }
    let added = store.add_events(&owner, 151, &[], &file(200)).await;
    assert_eq!(added.unwrap(), LeaseState::Held);
    let start = EventPosition::default();
    let stored = store.events(&run(1), start, 1000).await.unwrap();
    let stored: Vec<String> = stored.into_iter().map(|(_, event)| event).collect();
    assert_eq!(stored, texts);
}
