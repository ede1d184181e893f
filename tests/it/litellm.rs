//! The client against the real LiteLLM proxy, with a scripted server as the provider behind it.

use std::time::Duration;

use ralph::model::{Model, ModelEndpoint, ModelError, ModelReply, OpenAiCompatible};
use ralph::secret::Secret;
use ralph::usage::{Tokens, Usd};
use serde_json::{Value, json};

use crate::need;
use crate::support::chat_server::{Answer, ChatServer, Completion, Piece, Recorded};
use crate::support::litellm::{MASTER_KEY, Proxy, executable};
use crate::support::model::{quick, request};
use crate::support::ralph::Place;

const UPSTREAM_KEY: &str = "upstream-0123456789";

#[tokio::test(flavor = "multi_thread")]
async fn the_real_litellm_is_understood() {
    let executable = need!(executable());
    let upstream = ChatServer::serve(Some(UPSTREAM_KEY), provider).await;
    let proxy = Proxy::start(&executable, &models(&upstream)).await;

    a_priced_model_has_text_usage_and_cost(&proxy, &upstream).await;
    a_model_without_a_price_has_no_cost(&proxy).await;
    an_answer_cut_off_at_its_limit_says_so(&proxy).await;
    an_unknown_model_is_refused(&proxy).await;
    a_wrong_or_missing_key_is_unauthorized(&proxy).await;
    a_rate_limit_of_the_provider_is_a_wait(&proxy).await;
    a_failing_provider_is_tried_again(&proxy, &upstream).await;
    an_error_amid_the_text_is_tried_again(&proxy, &upstream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_litellm_serves_the_models_of_the_profiles() {
    let executable = need!(executable());
    let place = Place::new();
    place.write(
        "config/models.yaml",
        "profiles:\n  odd:\n    litellm_model: mistral/mistral-large-latest\n  twice:\n    litellm_model: zai/glm-4.7\n  \
         own:\n    litellm_model: openai/gpt-5\n    base_url: https://models.example.com\n  \
         key:\n    litellm_model: openai/gpt-5-mini\n    api_key_env: TEAM_KEY\n",
    );
    let ended = place.run(&["models", "--litellm"]);
    ended.expect(0, &[]);
    let config = &ended.stdout;
    assert_eq!(
        config.matches("model_name: \"zai/glm-4.7\"").count(),
        1,
        "{config}"
    );
    assert!(config.contains("api_key: \"os.environ/ZAI_API_KEY\""), "{config}");
    assert!(config.contains("api_key: \"os.environ/TEAM_KEY\""), "{config}");
    let behind = place.run(&[
        "models",
        "--litellm",
        "--set",
        "model_endpoint.base_url=http://127.0.0.1:4000",
    ]);
    assert!(!behind.stdout.contains("TEAM_KEY"), "{behind:?}");

    let proxy = Proxy::start_with(&executable, config).await;
    let models = reqwest::Client::new()
        .get(format!("{}/v1/models", proxy.address))
        .bearer_auth(MASTER_KEY)
        .send()
        .await
        .unwrap();
    let models: Value = models.json().await.unwrap();
    let names: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|model| model["id"].as_str())
        .collect();
    for name in [
        "zai/glm-4.7",
        "anthropic/claude-opus-4-5",
        "mistral/mistral-large-latest",
        "openai/gpt-5-mini",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(!names.contains(&"openai/gpt-5"), "{names:?}");
}

async fn a_priced_model_has_text_usage_and_cost(proxy: &Proxy, upstream: &ChatServer) {
    let reply = proxy.ask("hello").await.unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.model.as_str()),
        ("grüße 🦀", "zai/glm-4.7")
    );
    assert_eq!(
        reply.tokens,
        Some(Tokens {
            input: 1000,
            output: 200
        })
    );
    let cost = reply.cost.unwrap();
    assert!(
        cost > Usd::ZERO && cost < Usd::from_dollars(0.1).unwrap(),
        "{cost}"
    );
    let sent = &upstream.requests()[0];
    assert_eq!(
        (&sent.body["model"], &sent.body["max_tokens"]),
        (&json!("glm-4.7"), &json!(2048))
    );
}

async fn a_model_without_a_price_has_no_cost(proxy: &Proxy) {
    let reply = proxy.ask_model("unpriced", "hello").await.unwrap();
    assert_eq!((reply.text.as_str(), reply.cost), ("grüße 🦀", None));
    assert!(reply.tokens.is_some());
}

async fn an_answer_cut_off_at_its_limit_says_so(proxy: &Proxy) {
    assert!(proxy.ask("be cut off").await.unwrap().cut_off);
}

async fn an_unknown_model_is_refused(proxy: &Proxy) {
    let error = proxy.ask_model("unknown/model", "hello").await.unwrap_err();
    let ModelError::Refused {
        status: 400, message, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(message.contains("unknown/model"), "{message}");
}

async fn a_wrong_or_missing_key_is_unauthorized(proxy: &Proxy) {
    for key in [Some("sk-wrong-0123456789"), None] {
        let error = proxy
            .model(key)
            .answer(&request("hello"), &mut |_| {})
            .await
            .unwrap_err();
        assert!(
            matches!(error, ModelError::Unauthorized { .. }),
            "{key:?}: {error:?}"
        );
    }
}

async fn a_rate_limit_of_the_provider_is_a_wait(proxy: &Proxy) {
    let error = proxy.ask("fail with 429").await.unwrap_err();
    let ModelError::RateLimited {
        model, retry_after, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (model.as_str(), retry_after),
        ("zai/glm-4.7", Some(Duration::from_secs(7)))
    );
}

async fn a_failing_provider_is_tried_again(proxy: &Proxy, upstream: &ChatServer) {
    let before = upstream.requests().len();
    let error = proxy.ask("fail with 500").await.unwrap_err();
    assert!(
        matches!(error, ModelError::Unavailable { attempts: 4, .. }),
        "{error:?}"
    );
    assert!(upstream.requests().len() >= before + 4);
}

async fn an_error_amid_the_text_is_tried_again(proxy: &Proxy, upstream: &ChatServer) {
    let before = upstream.requests().len();
    let error = proxy.ask("fail late").await.unwrap_err();
    let ModelError::Unavailable {
        unmetered_attempts: 4,
        source,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert!(source.to_string().contains("lost the thread"), "{source}");
    assert_eq!(upstream.requests().len(), before + 4);
}

/// The provider behind the proxy. It does what the last message asks for.
fn provider(request: &Recorded) -> Answer {
    match request.last_words() {
        "fail with 429" => Answer::error(429, "slow down").with_header("retry-after", "7"),
        "fail with 500" => Answer::error(500, "out of order"),
        "fail late" => Answer::stream([
            Piece::delta("half a"),
            Piece::delta(" word"),
            Piece::event(&json!({"error": {"message": "lost the thread", "code": "500"}})),
        ]),
        "be cut off" => Answer::Completion(Completion {
            text: "half a".to_owned(),
            finish_reason: "length",
            usage: None,
        }),
        _ => Answer::text("grüße 🦀"),
    }
}

/// The model client against the proxy.
trait ProxyClient {
    fn model(&self, key: Option<&str>) -> OpenAiCompatible;
    async fn ask(&self, text: &str) -> Result<ModelReply, ModelError>;
    async fn ask_model(&self, name: &str, text: &str) -> Result<ModelReply, ModelError>;
}

impl ProxyClient for Proxy {
    fn model(&self, key: Option<&str>) -> OpenAiCompatible {
        let endpoint = ModelEndpoint::parse(&self.address).unwrap();
        OpenAiCompatible::new(endpoint, key.map(Secret::new), quick()).unwrap()
    }

    async fn ask(&self, text: &str) -> Result<ModelReply, ModelError> {
        self.ask_model("zai/glm-4.7", text).await
    }

    async fn ask_model(&self, name: &str, text: &str) -> Result<ModelReply, ModelError> {
        let mut request = request(text);
        request.profile.litellm_model = name.to_owned();
        self.model(Some(MASTER_KEY)).answer(&request, &mut |_| {}).await
    }
}

/// What the proxy serves.
fn models(upstream: &ChatServer) -> [Value; 2] {
    let api_base = format!("{}/v1", upstream.base_url());
    let model = |name: &str, litellm: &str| json!({"model_name": name, "litellm_params": {"model": litellm, "api_base": api_base, "api_key": UPSTREAM_KEY}});
    [
        model("zai/glm-4.7", "zai/glm-4.7"),
        model("unpriced", "openai/model-without-a-price"),
    ]
}
