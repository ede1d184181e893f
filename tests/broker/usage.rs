//! What is counted, in the languages of the services.

use ralph::gateway::meter::{CostBasis, MeterNotice, MeteredUsage};
use ralph::usage::{Tokens, Usd};
use rstest::rstest;
use serde_json::json;

use crate::support::model_service::{Answer, KEY, ModelService, USED};
use crate::world::{World, body, usd};

const TOKENS: Tokens = Tokens {
    input: 321,
    output: 42,
};

#[rstest]
#[tokio::test]
async fn every_language_and_form_is_counted(
    #[values("/v1/messages", "/v1/responses", "/v1/chat/completions")] path: &str,
    #[values(true, false)] stream: bool,
) {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(ralph::model::GATEWAY_KEY, &service).await;
    world.meter.begin_session(7, 3).unwrap();
    let response = world
        .call(path, &body(path, "priced", stream))
        .send()
        .await
        .unwrap();
    let received = response.text().await.unwrap();
    assert_eq!(received.contains("data: "), stream, "{received}");
    let spent = MeteredUsage {
        calls: 1,
        tokens: TOKENS,
        cost: usd(0.000_363),
        unpriced_calls: 0,
    };
    assert_eq!(world.meter.spent_in(7), Some(spent));
    let notice = MeterNotice::Spent {
        model: "priced".to_owned(),
        tokens: TOKENS,
        cost: Some(spent.cost),
        basis: CostBasis::Reported,
    };
    assert_eq!(world.notices(), [notice]);
}

#[rstest]
#[case::unmetered(Answer::Unmetered)]
#[case::cut(Answer::Cut(USED))]
#[tokio::test]
async fn missing_usage_costs_the_reservation(
    #[case] answer: Answer,
    #[values("/v1/messages", "/v1/responses", "/v1/chat/completions")] path: &str,
) {
    let service = ModelService::answering(answer).await;
    let world = World::new(ralph::model::GATEWAY_KEY, &service).await;
    let call = body(path, "priced", true);
    let _ = world.call(path, &call).send().await.unwrap().text().await;
    let set_aside = Tokens {
        input: call.to_string().len() as u64,
        output: 1000,
    };
    let spent = world.meter.spent();
    assert_eq!((spent.calls, spent.tokens), (1, set_aside));
}

/// The cache of Anthropic has prices of its own, and so has its search.
#[tokio::test]
async fn cached_tokens_and_searches_cost_what_they_cost() {
    let usage = json!({"input_tokens": 1000, "output_tokens": 0, "cache_creation_input_tokens": 3000,
        "cache_creation": {"ephemeral_5m_input_tokens": 2000, "ephemeral_1h_input_tokens": 1000},
        "cache_read_input_tokens": 10000, "server_tool_use": {"web_search_requests": 2}});
    let answer = json!({"type": "message", "usage": usage}).to_string();
    let json = vec![("content-type", "application/json".to_owned())];
    let service = ModelService::answering(Answer::Exactly(200, json, answer)).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    world
        .call("/v1/messages", &body("", "priced", false))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let spent = world.meter.spent();
    assert_eq!(spent.tokens.input, 14_000);
    // 1000 + 2000 x 1.25 + 1000 x 2 + 10000 x 0.1, each a millionth of a dollar, and two searches.
    assert_eq!(spent.cost, usd(0.0265));
}

/// The dearer of what LiteLLM reports and the price.
#[rstest]
#[case::unpriced("unpriced", 1, 0.25)]
#[case::dearer_than_the_price("priced", 1, 0.25)]
#[case::cheaper_than_the_price("priced", 400_000, 0.400_001)]
#[tokio::test]
async fn the_cost_that_litellm_reports_counts(
    #[case] model: &str,
    #[case] input: u64,
    #[case] expected: f64,
) {
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        ("x-litellm-response-cost", "0.25".to_owned()),
    ];
    let answer = json!({"usage": {"prompt_tokens": input, "completion_tokens": 1}}).to_string();
    let service = ModelService::answering(Answer::Exactly(200, headers, answer)).await;
    let world = World::new(ralph::model::GATEWAY_KEY, &service).await;
    let path = "/v1/chat/completions";
    world
        .call(path, &body(path, model, false))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    let spent = world.meter.spent();
    assert_eq!((spent.cost, spent.unpriced_calls), (usd(expected), 0));
}

#[tokio::test]
async fn a_refused_call_costs_nothing_and_a_limit_is_reported() {
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        ("retry-after", "30".to_owned()),
    ];
    let refusal = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}});
    let service = ModelService::answering(Answer::Exactly(429, headers, refusal.to_string())).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let before = jiff::Timestamp::now();
    let response = world
        .call("/v1/messages", &body("", "priced", true))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "30");
    assert_eq!(response.json::<serde_json::Value>().await.unwrap(), refusal);
    assert_eq!(world.meter.spent().cost, Usd::ZERO);
    let notices = world.notices();
    let limited = notices.iter().find_map(|notice| match notice {
        MeterNotice::RateLimited { status: 429, until } => *until,
        _ => None,
    });
    let wait = limited.unwrap().duration_since(before).as_secs();
    assert!((29..=40).contains(&wait), "{notices:?}");
}

/// The gateway adds a bound and, where it is missing, the request for usage; the rest of the call stays as it is.
#[tokio::test]
async fn a_call_is_passed_on_as_it_was_written() {
    let service = ModelService::scripted(KEY, |_| Answer::Words(USED)).await;
    let world = World::new(ralph::model::GATEWAY_KEY, &service).await;
    let path = "/v1/chat/completions";
    let written = "{\"model\": \"m\",  \"messages\": [{\"role\":\"user\",\"content\":\"\\u00fc 1.0e5\"}], \"stream\":true }\n";
    let call = world.call(path, &serde_json::Value::Null).body(written);
    assert_eq!(call.send().await.unwrap().status(), 200);
    let expected = format!(
        "{},\"max_completion_tokens\":32000,\"stream_options\":{{\"include_usage\":true}}}}",
        written.trim_end().trim_end_matches('}')
    );
    assert_eq!(service.requests()[0].raw, expected);
}
