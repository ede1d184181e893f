//! Budgets across runs stop claims.

use ralph::RunOutcomeKind;
use ralph::store::{ClaimRequest, LeaseState, QueueClaim, QueueRelease, SpendingLimits, Store};
use ralph::usage::Usd;

use crate::database::{Database, LEASE, claim, request, run, submission};
use crate::on_both;

on_both!(
    a_budget_of_the_day_stops_claims_until_the_next,
    a_budget_of_a_project_leaves_the_others_alone,
    the_cost_of_a_run_is_counted_once_and_on_its_day,
);

fn limited(per_day: Option<u32>, per_project: Option<u32>) -> ClaimRequest {
    ClaimRequest {
        limits: SpendingLimits {
            per_day: per_day.map(Usd::from_cents),
            per_project: per_project.map(Usd::from_cents),
        },
        ..request("a")
    }
}

async fn renew(store: &Store, claim: &QueueClaim, cents: u32) {
    let renewed = store.renew(claim, LEASE, Usd::from_cents(cents)).await;
    assert_eq!(renewed.unwrap(), LeaseState::Held);
}

/// Midnight passes, in UTC.
async fn next_day(database: &Database) {
    database.execute("UPDATE spending SET day = day - 1").await;
}

async fn a_budget_of_the_day_stops_claims_until_the_next(database: Database) {
    let store = database.open().await;
    for number in 1..=2 {
        store.submit(&submission(number)).await.unwrap();
    }
    let first = claim(&store, "a").await.unwrap();
    renew(&store, &first, 100).await;
    let request = limited(Some(100), None);
    assert_eq!(store.claim(&request).await.unwrap(), None);
    let more = limited(Some(101), None);
    let second = store.claim(&more).await.unwrap().unwrap();
    let released = store.release(&second, &QueueRelease::Shutdown).await;
    assert_eq!(released.unwrap(), LeaseState::Held);
    next_day(&database).await;
    assert!(store.claim(&request).await.unwrap().is_some());
}

async fn a_budget_of_a_project_leaves_the_others_alone(database: Database) {
    let store = database.open().await;
    for (number, project) in [(1, "site"), (2, "site"), (3, "shop")] {
        let mut submission = submission(number);
        submission.project = project.into();
        store.submit(&submission).await.unwrap();
    }
    let first = claim(&store, "a").await.unwrap();
    let finished = store
        .finish(&first, RunOutcomeKind::Done, "", Usd::from_cents(100))
        .await;
    assert_eq!(finished.unwrap(), LeaseState::Held);
    let request = limited(None, Some(100));
    assert_eq!(store.claim(&request).await.unwrap().unwrap().run, run(3));
    assert_eq!(store.claim(&request).await.unwrap(), None);
    next_day(&database).await;
    assert_eq!(store.claim(&request).await.unwrap().unwrap().run, run(2));
}

async fn the_cost_of_a_run_is_counted_once_and_on_its_day(database: Database) {
    let store = database.open().await;
    for number in 1..=2 {
        store.submit(&submission(number)).await.unwrap();
    }
    let first = claim(&store, "a").await.unwrap();
    for cents in [40, 60, 60] {
        renew(&store, &first, cents).await;
    }
    assert_eq!(
        store.claim(&limited(Some(60), None)).await.unwrap(),
        None,
        "60 cents are used"
    );
    let spent = store.spent_today().await.unwrap();
    assert_eq!(spent, [("site".to_owned(), Usd::from_cents(60))]);
    next_day(&database).await;
    renew(&store, &first, 70).await;
    assert_eq!(
        store.claim(&limited(Some(10), None)).await.unwrap(),
        None,
        "10 of 70 today"
    );
    assert!(store.claim(&limited(Some(11), None)).await.unwrap().is_some());
}
