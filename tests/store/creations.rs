//! Creations of runs with an idempotency key, by several services on one store.

use ralph::digest::Digest;
use ralph::store::{ApiCreation, CreationAttempt, LeaseState, Store};

use crate::database::{Database, run};
use crate::on_both;

on_both!(
    a_key_creates_one_run,
    one_of_many_services_finishes_a_creation_that_was_cut_off,
    a_service_that_lost_a_creation_changes_nothing,
    a_creation_of_an_older_ralph_gets_a_run,
);

/// A request of the same caller with the same key. The number is that of the proposed run.
fn attempt(number: usize) -> CreationAttempt {
    CreationAttempt {
        caller: "tester".into(),
        key: "monday".into(),
        request: Digest::sha256(b"a task"),
        proposed: run(number),
    }
}

async fn begin(store: &Store, number: usize) -> ApiCreation {
    store.begin_creation(&attempt(number)).await.unwrap()
}

/// Lets the lease of the creation end.
async fn end_lease(database: &Database) {
    let expire = "UPDATE api_creations SET due_at = due_at - 6000";
    database.execute(expire).await;
}

async fn a_key_creates_one_run(database: Database) {
    let store = database.open().await;
    assert_eq!(begin(&store, 1).await, ApiCreation::Taken(run(1)));
    assert_eq!(begin(&store, 2).await, ApiCreation::AtWork);
    store.finish_creation(&attempt(1), &run(1)).await.unwrap();
    store.abandon_creation(&attempt(1)).await.unwrap();
    end_lease(&database).await;
    assert_eq!(begin(&store, 2).await, ApiCreation::Done(run(1)));
    let other = CreationAttempt {
        request: Digest::sha256(b"another task"),
        ..attempt(3)
    };
    assert_eq!(store.begin_creation(&other).await.unwrap(), ApiCreation::Other);
    let of_another_caller = CreationAttempt {
        caller: "other".into(),
        ..attempt(4)
    };
    let begun = store.begin_creation(&of_another_caller).await.unwrap();
    assert_eq!(begun, ApiCreation::Taken(run(4)));
    // What failed can be tried again.
    store.abandon_creation(&of_another_caller).await.unwrap();
    let again = CreationAttempt {
        proposed: run(5),
        ..of_another_caller
    };
    assert_eq!(
        store.begin_creation(&again).await.unwrap(),
        ApiCreation::Taken(run(5))
    );
}

async fn one_of_many_services_finishes_a_creation_that_was_cut_off(database: Database) {
    let first = database.open().await;
    assert_eq!(begin(&first, 1).await, ApiCreation::Taken(run(1)));
    end_lease(&database).await;
    let services = (2..10).map(|number| {
        let opened = database.open();
        async move { begin(&opened.await, number).await }
    });
    let found = futures_util::future::join_all(services).await;
    let taken: Vec<_> = found.iter().filter(|one| **one != ApiCreation::AtWork).collect();
    assert_eq!(
        taken,
        [&ApiCreation::Taken(run(1))],
        "with the run of the first one"
    );
}

async fn a_service_that_lost_a_creation_changes_nothing(database: Database) {
    let store = database.open().await;
    begin(&store, 1).await;
    let renewed = store.renew_creation(&attempt(1)).await.unwrap();
    assert_eq!(renewed, LeaseState::Held);
    end_lease(&database).await;
    assert_eq!(begin(&store, 2).await, ApiCreation::Taken(run(1)));
    let renewed = store.renew_creation(&attempt(1)).await.unwrap();
    assert_eq!(renewed, LeaseState::Lost);
    store.abandon_creation(&attempt(1)).await.unwrap();
    store.finish_creation(&attempt(1), &run(9)).await.unwrap();
    assert_eq!(begin(&store, 3).await, ApiCreation::AtWork);
    store.finish_creation(&attempt(2), &run(1)).await.unwrap();
    assert_eq!(begin(&store, 3).await, ApiCreation::Done(run(1)));
}

async fn a_creation_of_an_older_ralph_gets_a_run(database: Database) {
    let store = database.open().await;
    let request = attempt(1).request;
    database
        .execute(&format!(
            "INSERT INTO api_creations (caller, creation_key, request, created_at)
             VALUES ('tester', 'monday', '{request}', 9000000000000)"
        ))
        .await;
    assert_eq!(begin(&store, 1).await, ApiCreation::Taken(run(1)));
    end_lease(&database).await;
    assert_eq!(begin(&store, 2).await, ApiCreation::Taken(run(1)));
}
