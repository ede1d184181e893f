//! Answers pass as they come.

use std::time::{Duration, Instant};

use ralph::gateway::meter::CostBasis;
use ralph::gateway::meter::MeterNotice;

use crate::support::model_service::{Answer, ModelService, USED};
use crate::support::ralph::eventually;
use crate::world::{TIMEOUT, World, body};

/// The service says ten words with pauses between: they come one by one, as far as a busy host lets them.
#[tokio::test]
async fn a_stream_is_not_held_back() {
    const PAUSE: Duration = Duration::from_millis(300);
    let service = ModelService::answering(Answer::Slow(USED, 10, PAUSE)).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let started = Instant::now();
    let mut response = world
        .call("/v1/messages", &body("", "m", true))
        .send()
        .await
        .unwrap();
    let mut received = Vec::new();
    while let Some(chunk) = tokio::time::timeout(TIMEOUT, response.chunk())
        .await
        .unwrap()
        .unwrap()
    {
        received.push((started.elapsed(), chunk));
    }
    let at = |text: &str| {
        let found = received
            .iter()
            .find(|(_, chunk)| String::from_utf8_lossy(chunk).contains(text));
        found.unwrap_or_else(|| panic!("{text} did not come")).0
    };
    let (first, last) = (at("message_start"), at("message_stop"));
    assert!(last >= first + PAUSE * 9, "{first:?} {last:?}");
    let words = received
        .iter()
        .filter(|(_, chunk)| String::from_utf8_lossy(chunk).contains("word "));
    assert!(words.count() >= 5, "words came together");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_the_call_and_pays_for_it() {
    let service = ModelService::answering(Answer::Slow(USED, 1000, Duration::from_millis(20))).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let mut response = world
        .call("/v1/messages", &body("", "m", true))
        .send()
        .await
        .unwrap();
    response.chunk().await.unwrap();
    drop(response);
    let is_settled = || {
        let reserved = |notice: &MeterNotice| {
            matches!(
                notice,
                MeterNotice::Spent {
                    basis: CostBasis::Reserved,
                    ..
                }
            )
        };
        world.notices().iter().any(reserved)
    };
    eventually("the call is settled", is_settled);
}
