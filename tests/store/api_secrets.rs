//! Tokens, sessions and login links of the API.

use std::time::Duration;

use ralph::store::{ApiScope, ApiSecretKind, Store};
use ralph::{RunId, Secret};

use crate::database::Database;
use crate::on_both;

on_both!(
    a_token_is_found_by_its_value_until_it_is_revoked,
    an_expired_secret_is_not_found,
    of_many_logins_with_one_link_one_succeeds,
    a_logout_ends_all_sessions_of_a_name,
    a_secret_of_a_run_ends_with_the_links_of_that_run,
);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

async fn add(store: &Store, value: &str, kind: ApiSecretKind, name: &str, lifetime: Duration) -> bool {
    let secret = Secret::new(value);
    let added = store.add_api_secret(&secret, kind, name, ApiScope::Steer, lifetime);
    added.await.unwrap()
}

async fn is_known(store: &Store, value: &str, kind: ApiSecretKind) -> bool {
    store
        .api_secret(&Secret::new(value), kind)
        .await
        .unwrap()
        .is_some()
}

async fn a_token_is_found_by_its_value_until_it_is_revoked(database: Database) {
    let store = database.open().await;
    assert!(add(&store, "one", ApiSecretKind::Token, "a", DAY).await);
    assert!(!add(&store, "two", ApiSecretKind::Token, "a", DAY).await);
    assert!(add(&store, "three", ApiSecretKind::Session, "a", DAY).await);
    let found = store
        .api_secret(&Secret::new("one"), ApiSecretKind::Token)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((found.name.as_str(), found.scope), ("a", ApiScope::Steer));
    assert!(!is_known(&store, "one", ApiSecretKind::Session).await);
    assert!(!is_known(&store, "two", ApiSecretKind::Token).await);
    // A rebuild of the index does not touch them.
    store.replace_runs("here", &[]).await.unwrap();
    assert!(store.revoke_api_token("a").await.unwrap());
    assert!(!store.revoke_api_token("a").await.unwrap());
    assert!(!is_known(&store, "one", ApiSecretKind::Token).await);
    assert!(!is_known(&store, "three", ApiSecretKind::Session).await);
}

async fn an_expired_secret_is_not_found(database: Database) {
    let store = database.open().await;
    for (value, kind) in [("t", ApiSecretKind::Token), ("s", ApiSecretKind::Session)] {
        assert!(add(&store, value, kind, "a", Duration::ZERO).await);
        assert!(!is_known(&store, value, kind).await);
    }
    assert!(add(&store, "l", ApiSecretKind::Login, "a", Duration::ZERO).await);
    assert!(store.spend_login(&Secret::new("l")).await.unwrap().is_none());
    assert_eq!(store.api_tokens().await.unwrap().len(), 1);
}

async fn of_many_logins_with_one_link_one_succeeds(database: Database) {
    let store = database.open().await;
    assert!(add(&store, "link", ApiSecretKind::Login, "a", DAY).await);
    let mut logins = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        logins.spawn(async move { store.spend_login(&Secret::new("link")).await.unwrap().is_some() });
    }
    let won = logins.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!(won, 1);
}

async fn a_logout_ends_all_sessions_of_a_name(database: Database) {
    let store = database.open().await;
    for (value, name) in [("one", "a"), ("two", "a"), ("three", "b")] {
        assert!(add(&store, value, ApiSecretKind::Session, name, DAY).await);
    }
    assert!(add(&store, "four", ApiSecretKind::Token, "a", DAY).await);
    assert!(add(&store, "five", ApiSecretKind::Session, "b", DAY).await);
    store.end_session(&Secret::new("five")).await.unwrap();
    assert!(!is_known(&store, "five", ApiSecretKind::Session).await);
    store.end_sessions("a").await.unwrap();
    assert!(!is_known(&store, "one", ApiSecretKind::Session).await);
    assert!(!is_known(&store, "two", ApiSecretKind::Session).await);
    assert!(is_known(&store, "three", ApiSecretKind::Session).await);
    assert!(is_known(&store, "four", ApiSecretKind::Token).await);
}

async fn a_secret_of_a_run_ends_with_the_links_of_that_run(database: Database) {
    let store = database.open().await;
    let (one, two) = (
        RunId::parse("r00000001").unwrap(),
        RunId::parse("r00000002").unwrap(),
    );
    for (value, run) in [("link", &one), ("other", &two)] {
        let secret = Secret::new(value);
        let added = store.add_run_secret(&secret, ApiSecretKind::Session, run, DAY);
        added.await.unwrap();
    }
    let link = Secret::new("link");
    let found = store.api_secret(&link, ApiSecretKind::Session).await;
    let found = found.unwrap().unwrap();
    assert_eq!((found.scope, found.run), (ApiScope::Read, Some(one.clone())));
    store.revoke_run_secrets(&one).await.unwrap();
    assert!(!is_known(&store, "link", ApiSecretKind::Session).await);
    assert!(is_known(&store, "other", ApiSecretKind::Session).await);
}
