//! Bounds that hold, however many calls go on at once, and through a crash.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use ralph::clock;
use ralph::credential::CredentialSource;
use ralph::gateway::broker::{BrokerService, ModelUpstream};
use ralph::gateway::meter::{Allowance, Meter, MeterNotice, MeterSetup, PriceList};
use ralph::secret::Secret;
use ralph::usage::Tokens;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::model_service::{Answer, KEY, ModelService, USED, Usage};
use crate::world::{World, body, price, usd};

/// Each call can cost about 1180 tokens, of which 5000 are allowed: four of twenty fit at once.
#[tokio::test]
async fn streams_at_the_same_time_cannot_overshoot() {
    let most = Usage {
        input: 40,
        output: 1000,
    };
    let service = ModelService::answering(Answer::Slow(most, 3, Duration::from_millis(100))).await;
    let allowance = Allowance {
        cost: Some(usd(0.005)),
        tokens: None,
    };
    let world = World::bounded(ralph::model::ANTHROPIC_KEY, &service, allowance).await;
    let call = || async {
        let response = world
            .call("/v1/messages", &body("", "priced", true))
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    };
    let answers = join_all((0..20).map(|_| call())).await;
    let served = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!((served, service.requests().len()), (4, 4));
    let (_, refusal) = answers.iter().find(|(status, _)| *status == 402).unwrap();
    let refusal: Value = serde_json::from_str(refusal).unwrap();
    assert_eq!(refusal["error"]["type"], "billing_error");
    assert!(
        refusal["error"]["message"]
            .as_str()
            .unwrap()
            .contains(": budget exceeded: ")
    );
    let spent = world.meter.spent();
    assert!(spent.cost <= usd(0.005) && spent.calls == 4, "{spent:?}");
    assert!(
        world
            .notices()
            .iter()
            .any(|notice| matches!(notice, MeterNotice::BudgetExceeded(_)))
    );
}

/// A tool that the service runs reads as much as it likes: such calls are made one by one, so that only the last can exceed
/// the limit.
#[rstest]
#[case::search("/v1/messages", json!([{"type": "web_search_20250305", "name": "web_search"}]))]
#[case::beside_others("/v1/messages", json!([{"name": "a", "input_schema": {}}, {"type": "web_search_20260209", "name": "w"}]))]
#[case::responses("/v1/responses", json!([{"type": "web_search"}]))]
#[case::in_a_namespace("/v1/responses", json!([{"type": "namespace", "name": "n", "tools": [{"type": "web_search_preview"}]}]))]
#[tokio::test]
async fn calls_without_a_bound_are_made_alone(#[case] path: &str, #[case] tools: Value) {
    let much = Usage {
        input: 20_000,
        output: 10,
    };
    let service = ModelService::answering(Answer::Slow(much, 2, Duration::from_millis(20))).await;
    let allowance = Allowance {
        cost: None,
        tokens: Some(60_000),
    };
    let world = World::bounded(ralph::model::GATEWAY_KEY, &service, allowance).await;
    let mut whole = body(path, "m", true);
    whole["tools"] = tools;
    let call = || async {
        let response = world.call(path, &whole).send().await.unwrap();
        let status = response.status().as_u16();
        response.text().await.unwrap();
        status
    };
    let statuses = join_all((0..20).map(|_| call())).await;
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!((served, service.requests().len()), (3, 3), "{statuses:?}");
    assert_eq!(world.meter.spent().tokens.total(), 60_030);
}

/// What the service did for a call that the sandbox broke off is unknown.
#[tokio::test]
async fn a_call_without_a_bound_that_reports_nothing_counts_as_a_whole_window() {
    let service = ModelService::answering(Answer::Unmetered).await;
    let allowance = Allowance {
        cost: None,
        tokens: Some(60_000),
    };
    let world = World::bounded(ralph::model::ANTHROPIC_KEY, &service, allowance).await;
    let mut whole = body("", "m", true);
    whole["tools"] = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    for expected in [200, 402] {
        let response = world.call("/v1/messages", &whole).send().await.unwrap();
        assert_eq!(response.status().as_u16(), expected);
        let _ = response.text().await;
    }
    assert!(world.meter.spent().tokens.input >= 1 << 20);
}

/// What is cached for an hour costs twice the price, a dearer tier several times, and some texts have a token in each byte.
#[rstest]
#[case::cache("/v1/messages", json!({}), json!({"input_tokens": 0, "output_tokens": 1000, "cache_creation_input_tokens": 4000,
    "cache_creation": {"ephemeral_1h_input_tokens": 4000}}))]
#[case::tier("/v1/chat/completions", json!({"service_tier": "priority"}), json!({"prompt_tokens": 4000, "completion_tokens": 1000}))]
#[case::tokens("/v1/responses", json!({}), json!({"input_tokens": 4000, "output_tokens": 1000}))]
#[tokio::test]
async fn multiplied_prices_cannot_overshoot(#[case] path: &str, #[case] added: Value, #[case] usage: Value) {
    let answer = json!({ "usage": usage }).to_string();
    let headers = vec![("content-type", "application/json".to_owned())];
    let service = ModelService::answering(Answer::Exactly(200, headers, answer)).await;
    let allowance = Allowance {
        cost: Some(usd(0.04)),
        tokens: None,
    };
    let world = World::bounded(ralph::model::GATEWAY_KEY, &service, allowance).await;
    let mut whole = body(path, "priced", false);
    let field = if path == "/v1/responses" {
        "input"
    } else {
        "messages"
    };
    whole[field][0]["content"] = json!("7".repeat(4000));
    whole
        .as_object_mut()
        .unwrap()
        .extend(added.as_object().unwrap().clone());
    let call = || async {
        let response = world.call(path, &whole).send().await.unwrap();
        let status = response.status().as_u16();
        response.text().await.unwrap();
        status
    };
    let statuses = join_all((0..20).map(|_| call())).await;
    let spent = world.meter.spent();
    assert!(statuses.contains(&200) && statuses.contains(&402), "{statuses:?}");
    assert!(spent.cost <= usd(0.04), "{spent:?}");
}

/// A call that does not fit beside those in progress may fit when they are over.
#[tokio::test]
async fn a_call_waits_for_what_calls_in_progress_leave() {
    let service = ModelService::answering(Answer::Slow(USED, 2, Duration::from_millis(20))).await;
    let allowance = Allowance {
        cost: None,
        tokens: Some(2000),
    };
    let world = World::bounded(ralph::model::ANTHROPIC_KEY, &service, allowance).await;
    let call = || async {
        let response = world
            .call("/v1/messages", &body("", "m", true))
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        response.text().await.unwrap();
        status
    };
    assert_eq!(join_all((0..3).map(|_| call())).await, [200, 200, 200]);
}

#[tokio::test]
async fn what_is_left_over_can_be_spent() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let allowance = Allowance {
        cost: None,
        tokens: Some(2000),
    };
    let world = World::bounded(ralph::model::ANTHROPIC_KEY, &service, allowance).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let response = world
            .call("/v1/messages", &body("", "m", true))
            .send()
            .await
            .unwrap();
        statuses.push(response.status().as_u16());
        response.text().await.unwrap();
    }
    // Each uses 363 and may use 1093: after three of them 911 are left.
    assert_eq!(statuses, [200, 200, 200, 402]);
    world.meter.allow(Allowance {
        cost: None,
        tokens: Some(20_000),
    });
    let response = world
        .call("/v1/messages", &body("", "m", true))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}

/// One call with an unknown price is made before it is refused; of many at the same time, only one counts as this first one.
#[tokio::test]
async fn of_many_calls_at_once_with_an_unknown_price_one_is_made() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let allowance = Allowance {
        cost: Some(usd(10.0)),
        tokens: None,
    };
    let world = World::bounded(ralph::model::ANTHROPIC_KEY, &service, allowance).await;
    let call = || async {
        let call = world.call("/v1/messages", &body("", "unpriced", false));
        call.send().await.unwrap().text().await.unwrap()
    };
    join_all((0..10).map(|_| call())).await;
    assert_eq!(service.requests().len(), 1);
}

/// An unknown price is not zero.
#[tokio::test]
async fn an_unknown_price_stops_a_run_that_only_a_cost_bounds() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let allowance = Allowance {
        cost: Some(usd(10.0)),
        tokens: None,
    };
    let world = World::bounded(ralph::model::ANTHROPIC_KEY, &service, allowance).await;
    for expected in [200, 402] {
        let response = world
            .call("/v1/messages", &body("", "unpriced", false))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status().as_u16(), expected);
        response.text().await.unwrap();
    }
    assert!(world.notices().contains(&MeterNotice::Unpriced {
        model: "unpriced".to_owned()
    }));
}

/// The pause for an unknown price asks for that price; with it, the run continues.
#[tokio::test]
async fn a_price_that_is_given_later_lets_the_run_go_on() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let allowance = Allowance {
        cost: Some(usd(10.0)),
        tokens: None,
    };
    let world = World::bounded(ralph::model::ANTHROPIC_KEY, &service, allowance).await;
    let status = |world: &World, model: &str| {
        let call = world.call("/v1/messages", &body("", model, false)).send();
        async { call.await.unwrap().status().as_u16() }
    };
    assert_eq!(status(&world, "priced-later").await, 200);
    // It is not this one whose price is unknown.
    assert_eq!(status(&world, "priced").await, 402);
    let unknown = |model: &str| MeterNotice::Unpriced {
        model: model.to_owned(),
    };
    assert!(world.notices().contains(&unknown("priced-later")));
    let spent = world.meter.spent();
    assert_eq!((spent.unpriced_calls, spent.cost), (1, usd(0.0)));

    let prices = ["priced", "priced-later"].map(|model| (model.to_owned(), price()));
    let later = Meter::open(MeterSetup {
        file: world.file(),
        allowance,
        prices: PriceList::new(prices),
        sink: Arc::<Mutex<Vec<MeterNotice>>>::default(),
        clock: clock::system(),
    });
    let later = later.unwrap();
    let at_most = price().cost_of(Tokens {
        input: 2 * spent.tokens.input,
        output: spent.tokens.output,
    });
    let counted = later.spent();
    assert_eq!((counted.unpriced_calls, counted.cost), (0, at_most));
    assert!(later.reserve("priced", Tokens::default()).await.is_ok());
}

#[tokio::test]
async fn counters_survive_a_crash() {
    let service = ModelService::scripted(KEY, |request| match request.body["stream"].as_bool() {
        Some(true) => Answer::Slow(USED, 1000, Duration::from_millis(50)),
        _ => Answer::Words(USED),
    })
    .await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    world.meter.begin_session(1, 1).unwrap();
    world
        .call("/v1/messages", &body("", "priced", false))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let going_on = world
        .call("/v1/messages", &body("", "priced", true))
        .send()
        .await
        .unwrap();
    assert_eq!(going_on.status(), 200);
    let before = world.meter.spent();
    assert_eq!(before.calls, 2);

    // As a process leaves it that was killed: one call is open, and a line was being written.
    let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let left = std::fs::read_to_string(world.file()).unwrap();
    std::fs::write(dir.path().join("spending.jsonl"), format!("{left}{{\"at\":\"20")).unwrap();
    let source = CredentialSource::Fixed(Secret::new(KEY));
    let upstream = || {
        ModelUpstream::new(
            ralph::model::ANTHROPIC_KEY,
            source.clone(),
            Some(&service.base_url()),
        )
        .unwrap()
    };
    let after = World::in_dir(
        dir.clone(),
        BrokerService::Model(upstream()),
        Allowance::default(),
    )
    .await;
    assert_eq!(after.meter.spent(), before);
    assert_eq!(
        (after.meter.spent_in(1), after.meter.spent_in(2)),
        (Some(before), None)
    );

    after
        .call("/v1/messages", &body("", "priced", false))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let spent = after.meter.spent();
    drop(after);
    let again = World::in_dir(dir, BrokerService::Model(upstream()), Allowance::default()).await;
    assert_eq!((again.meter.spent(), spent.calls), (spent, 3));
}
