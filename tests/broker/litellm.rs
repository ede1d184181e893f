//! The real LiteLLM proxy behind the broker, with a scripted provider behind it.

use std::time::Duration;

use ralph::credential::CredentialSource;
use ralph::gateway::broker::{BrokerService, ModelUpstream};
use ralph::gateway::meter::{Allowance, CostBasis, MeterNotice};
use ralph::secret::Secret;
use ralph::usage::Usd;
use serde_json::{Value, json};

use crate::need;
use crate::support::litellm::{MASTER_KEY, Proxy, executable};
use crate::support::model_service::{Answer, KEY, ModelService, USED};
use crate::world::{World, body};

#[tokio::test(flavor = "multi_thread")]
async fn the_real_litellm_is_served_and_metered() {
    let executable = need!(executable());
    let slow_down = || {
        let headers = [("content-type", "application/json"), ("retry-after", "7")];
        let headers = headers.map(|(name, value)| (name, value.to_owned()));
        let said = json!({"error": {"message": "slow down", "type": "rate_limit", "code": "429"}});
        Answer::Exactly(429, headers.to_vec(), said.to_string())
    };
    let provider = ModelService::scripted(KEY, move |request| {
        if request.raw.contains("slow down") {
            slow_down()
        } else {
            Answer::Words(USED)
        }
    })
    .await;
    let proxy = Proxy::start(&executable, &models(&provider)).await;

    let world = world(&proxy, MASTER_KEY).await;
    every_language_is_counted(&world).await;
    a_rate_limit_is_reported(&world).await;
    a_wrong_key_is_reported(&proxy).await;
}

async fn every_language_is_counted(world: &World) {
    for (calls, (path, model)) in [
        ("/v1/chat/completions", "zai/glm-4.7"),
        ("/v1/messages", "claude"),
        ("/v1/responses", "gpt"),
    ]
    .into_iter()
    .enumerate()
    {
        for stream in [false, true] {
            let response = world.call(path, &body(path, model, stream)).send().await.unwrap();
            let (status, received) = (response.status(), response.text().await.unwrap());
            assert_eq!(status, 200, "{path}: {received}");
            assert!(!received.contains("CANARY"), "{received}");
            let notices = world.notices();
            let Some(MeterNotice::Spent {
                tokens, cost, basis, ..
            }) = notices.last()
            else {
                panic!("{notices:?}");
            };
            assert_eq!(
                *basis,
                CostBasis::Reported,
                "{path}, stream: {stream}: {received}"
            );
            assert_eq!(
                (tokens.input, tokens.output),
                (USED.input, USED.output),
                "{path}: {received}"
            );
            if calls == 0 {
                assert!(
                    cost.is_some_and(|cost| cost > Usd::ZERO),
                    "{path}, stream: {stream}: {received}"
                );
            }
        }
    }
}

async fn a_rate_limit_is_reported(world: &World) {
    let path = "/v1/chat/completions";
    let mut call = body(path, "zai/glm-4.7", true);
    call["messages"][0]["content"] = json!("slow down");
    let before = jiff::Timestamp::now();
    assert_eq!(world.call(path, &call).send().await.unwrap().status(), 429);
    let limited = world.notices().into_iter().find_map(|notice| match notice {
        MeterNotice::RateLimited { until, .. } => until,
        _ => None,
    });
    let wait = Duration::try_from(limited.unwrap().duration_since(before)).unwrap();
    assert!((6..30).contains(&wait.as_secs()), "{wait:?}");
}

async fn a_wrong_key_is_reported(proxy: &Proxy) {
    let world = world(proxy, "sk-wrong-CANARY-0123456789").await;
    let path = "/v1/chat/completions";
    let response = world
        .call(path, &body(path, "zai/glm-4.7", true))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
    let said: Value = response.json().await.unwrap();
    let message = said["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("the service refused the stored credential"),
        "{said}"
    );
    assert!(
        message.contains("store the model gateway key with `ralph token store`")
            && !message.contains("CANARY"),
        "{said}"
    );
}

async fn world(proxy: &Proxy, key: &str) -> World {
    let source = CredentialSource::Fixed(Secret::new(key));
    let upstream = ModelUpstream::new(ralph::model::GATEWAY_KEY, source, Some(&proxy.address)).unwrap();
    World::of(BrokerService::Model(upstream), Allowance::default()).await
}

fn models(provider: &ModelService) -> [Value; 3] {
    let model = |name: &str, litellm: &str, base: String| json!({"model_name": name, "litellm_params": {"model": litellm, "api_base": base, "api_key": KEY}});
    let base = provider.base_url();
    [
        model("zai/glm-4.7", "zai/glm-4.7", format!("{base}/v1")),
        model("claude", "anthropic/claude-sonnet-4-5-20250929", base.clone()),
        model("gpt", "openai/gpt-4o", format!("{base}/v1")),
    ]
}
