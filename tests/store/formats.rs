//! Databases of other versions.

use ralph::store::STORE_FORMAT;

use crate::database::{Database, run, submission};
use crate::on_both;

on_both!(a_newer_format_is_refused_by_name, an_older_format_is_migrated);

async fn a_newer_format_is_refused_by_name(database: Database) {
    let store = database.open().await;
    store.submit(&submission(1)).await.unwrap();
    store.close().await;
    database.execute("UPDATE ralph_store SET format = 99").await;
    let error = database.try_open().await.unwrap_err();
    let message = error.to_string();
    let expected = format!("has format 99; this ralph knows formats up to {STORE_FORMAT}");
    assert!(message.contains(&expected), "{message}");
    assert!(error.hint().unwrap().contains("newer ralph"), "{error:?}");
    database
        .execute(&format!("UPDATE ralph_store SET format = {STORE_FORMAT}"))
        .await;
    assert_eq!(
        database.open().await.queue().await.unwrap().len(),
        1,
        "nothing was changed"
    );
}

async fn an_older_format_is_migrated(database: Database) {
    database.prepare();
    database
        .execute(include_str!("../fixtures/store/format-1.sql"))
        .await;
    let store = database.open().await;
    let runs = store.runs().await.unwrap();
    assert_eq!(
        (runs.len(), &runs[0].id, &*runs[0].title),
        (1, &run(1), "An old run")
    );
    assert!(store.submit(&submission(1)).await.unwrap());
    store.close().await;
    assert_eq!(
        database.open().await.runs().await.unwrap(),
        runs,
        "it is migrated once"
    );
}
