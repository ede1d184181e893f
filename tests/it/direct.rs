//! Services that are called directly, each in its own protocol, and what a key alone is enough for.

use std::process::Command;

use ralph::model::{
    DirectService, Model, ModelEndpoint, ModelError, ModelReply, ModelRequest, OpenAiCompatible, PriceTable,
};
use ralph::secret::Secret;
use ralph::usage::{Tokens, Usd};
use rstest::rstest;
use serde_json::{Value, json};

use crate::need;
use crate::support::direct_server::{DirectServer, Flavour, IN, KEY, OUT, Said};
use crate::support::litellm::{MASTER_KEY, Proxy, executable};
use crate::support::model::{quick, request};
use crate::support::ralph::{Live, Place, TASK, eventually, finish, whole_task};

/// A model of each service.
fn model_of(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Zai => "zai/glm-4.7",
        Flavour::OpenAi => "openai/gpt-5-mini",
        Flavour::Anthropic => "anthropic/claude-opus-4-5",
        Flavour::OpenRouter => "openrouter/deepseek/deepseek-chat",
        Flavour::Gemini => "gemini/gemini-2.5-flash",
        Flavour::Ollama => "ollama/qwen3",
    }
}

fn service_of(flavour: Flavour) -> &'static DirectService {
    DirectService::for_model(model_of(flavour)).unwrap().0
}

/// A call of a model at its service.
fn call(flavour: Flavour, text: &str) -> ModelRequest {
    let mut request = request(text);
    let model = model_of(flavour);
    model.clone_into(&mut request.profile.litellm_model);
    request.profile.list_price = service_of(flavour).list_price(model, "http://127.0.0.1");
    request
}

async fn ask(server: &DirectServer, flavour: Flavour, key: &str) -> Result<ModelReply, ModelError> {
    let key = (flavour != Flavour::Ollama).then(|| Secret::new(key));
    let client = OpenAiCompatible::direct(service_of(flavour), &server.base_url(), key, quick()).unwrap();
    client.answer(&call(flavour, "hi"), &mut |_| {}).await
}

#[rstest]
// 10345 at $0.6, 2000 at $0.11, 678 at $2.2 per million.
#[case::zai(Flavour::Zai, 7_918_600)]
// 10345 at $0.25, 2000 at $0.025, 678 at $2.
#[case::openai(Flavour::OpenAi, 3_992_250)]
// 12345 at $5, 678 at $25.
#[case::anthropic(Flavour::Anthropic, 78_675_000)]
// As the service says.
#[case::openrouter(Flavour::OpenRouter, 12_300_000)]
// 10345 at $0.3, 2000 at $0.03, 678 at $2.5.
#[case::gemini(Flavour::Gemini, 4_858_500)]
#[case::ollama(Flavour::Ollama, 0)]
#[tokio::test]
async fn a_service_answers_in_its_own_protocol(#[case] flavour: Flavour, #[case] nanos: u64) {
    let server = DirectServer::saying(flavour, Said::Text("grüße 🦀".to_owned())).await;
    let reply = ask(&server, flavour, KEY).await.unwrap();
    let tokens = Tokens {
        input: IN,
        output: OUT,
    };
    assert_eq!((reply.text.as_str(), reply.tokens), ("grüße 🦀", Some(tokens)));
    assert_eq!(serde_json::to_value(reply.cost).unwrap(), json!(nanos));
    let body = &server.calls()[0];
    let (_, name) = DirectService::for_model(model_of(flavour)).unwrap();
    assert_eq!(body["model"], name);
    let limit = match flavour {
        Flavour::OpenAi => "max_completion_tokens",
        _ => "max_tokens",
    };
    assert_eq!(body[limit], 2048);
    let takes_temperature = !matches!(flavour, Flavour::OpenAi | Flavour::Anthropic);
    assert_eq!(body["temperature"] == 0.2, takes_temperature);
}

#[tokio::test]
async fn a_wrong_key_is_unauthorized_at_every_service() {
    for flavour in Flavour::ALL
        .into_iter()
        .filter(|flavour| *flavour != Flavour::Ollama)
    {
        let server = DirectServer::saying(flavour, Said::Text("no".to_owned())).await;
        let error = ask(&server, flavour, "sk-wrong").await.unwrap_err();
        assert!(
            matches!(error, ModelError::Unauthorized { .. }),
            "{flavour:?}: {error:?}"
        );
        assert!(server.calls().is_empty());
    }
}

#[rstest]
#[case::overloaded(json!({"type": "overloaded_error", "message": "Overloaded"}))]
#[case::limited(json!({"type": "rate_limit_error", "message": "slow down"}))]
#[tokio::test]
async fn an_overload_amid_an_answer_of_anthropic_is_a_wait(#[case] error: Value) {
    let server = DirectServer::saying(Flavour::Anthropic, Said::Late(error)).await;
    let error = ask(&server, Flavour::Anthropic, KEY).await.unwrap_err();
    let begun = ModelError::RateLimited {
        model: model_of(Flavour::Anthropic).to_owned(),
        retry_after: None,
        unmetered_attempts: 1,
    };
    assert_eq!(format!("{error:?}"), format!("{begun:?}"));
    let first = json!({"type": "overloaded_error", "message": "Overloaded"});
    let server = DirectServer::saying(Flavour::Anthropic, Said::Error(529, first)).await;
    let error = ask(&server, Flavour::Anthropic, KEY).await.unwrap_err();
    let refused = format!("{begun:?}").replace("unmetered_attempts: 1", "unmetered_attempts: 0");
    assert_eq!(format!("{error:?}"), refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_an_overload_broke_off_counts_in_the_budget() {
    let flavour = Flavour::Anthropic;
    let overload = json!({"type": "overloaded_error", "message": "Overloaded"});
    let server = DirectServer::saying(flavour, Said::Late(overload)).await;
    let place = place_for(flavour);
    let mut command = place.ralph(&["run"]);
    at(&mut command, &server, flavour);
    command.env("ANTHROPIC_API_KEY", KEY);
    tokio::task::block_in_place(|| {
        let live = Live::start(&mut command);
        eventually("the run waits", || {
            let log = place.runs().first().map(|run| run.join("ralph/activity.log"));
            log.and_then(|log| std::fs::read_to_string(log).ok())
                .is_some_and(|log| log.contains("waiting until"))
        });
        let status = place.status();
        live.signal("TERM");
        live.wait();
        // The whole answer was reserved: every byte of the prompt and the limit of the answer.
        let tokens = status["tokens"].as_u64().unwrap();
        let limit = server.calls()[0]["max_tokens"].as_u64().unwrap();
        assert!(tokens > limit, "{status}");
        assert!(status["cost_usd"].as_f64().unwrap() > 0.0, "{status}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_unknown_cost_that_a_limit_broke_off_pauses_the_run() {
    let flavour = Flavour::OpenRouter;
    let limit = json!({"code": 429, "message": "slow down"});
    let server = DirectServer::saying(flavour, Said::Late(limit)).await;
    let place = place_for(flavour);
    let mut command = place.ralph(&["run"]);
    at(&mut command, &server, flavour);
    command.env("OPENROUTER_API_KEY", KEY);
    let ended = tokio::task::block_in_place(|| finish(&mut command));
    let why = format!("paused: the cost of `{}` is unknown", model_of(flavour));
    ended.expect(3, &[&why]);
    assert_eq!(server.calls().len(), 1);
}

#[rstest]
#[case::free(json!({"cost": 0}), json!(0))]
#[case::unknown_key(json!({"cost": 0, "is_byok": null}), json!(0))]
// With the user's own key of another provider, `cost` is the fee.
#[case::own_key(
    json!({"cost": 0, "is_byok": true, "cost_details": {"upstream_inference_cost": 0.01}}),
    json!(10_000_000)
)]
#[case::own_key_of_unknown_cost(json!({"cost": 0, "is_byok": true, "cost_details": null}), Value::Null)]
#[case::not_reported(json!({"cost": null}), Value::Null)]
#[tokio::test]
async fn what_openrouter_reports_is_the_cost(#[case] usage: Value, #[case] nanos: Value) {
    let server = DirectServer::saying(Flavour::OpenRouter, Said::Billed(usage)).await;
    let reply = ask(&server, Flavour::OpenRouter, KEY).await.unwrap();
    assert_eq!(serde_json::to_value(reply.cost).unwrap(), nanos);
}

#[rstest]
#[case::openai_without_the_list(
    Flavour::OpenAi,
    "You have insufficient permissions for this operation. Missing scopes: api.model.read.",
    true
)]
#[case::openai(Flavour::OpenAi, "Country, region, or territory not supported", false)]
#[case::anthropic(Flavour::Anthropic, "Request not allowed", false)]
#[case::openrouter(Flavour::OpenRouter, "This key is disabled", false)]
#[case::gemini(
    Flavour::Gemini,
    "Your API key sk-direct-CANARY-0123456789 was reported as leaked.",
    false
)]
#[case::ollama(Flavour::Ollama, "", false)]
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_not_be_used_is_named_before_the_first_call(
    #[case] flavour: Flavour,
    #[case] message: &str,
    #[case] accepted: bool,
) {
    let server = DirectServer::saying(flavour, Said::Text(whole_task().to_string())).await;
    server.refuse_check(403, json!({"code": 403, "message": message}));
    let place = place_for(flavour);
    let mut command = place.ralph(&["run"]);
    at(&mut command, &server, flavour);
    if let Some(variable) = service_of(flavour).key_variable {
        command.env(variable, KEY);
    }
    let ended = tokio::task::block_in_place(|| finish(&mut command));
    let shown = message.replace(KEY, "[redacted]");
    if accepted {
        ended.expect(0, &["accepts `OPENAI_API_KEY`", "done: "]);
    } else {
        let why = format!("refused it (HTTP 403): {shown}");
        ended.expect(1, &[&why, "check the account and its region at the service"]);
        assert!(server.calls().is_empty());
    }
    assert!(!format!("{ended:?}").contains(KEY), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_403_of_the_users_own_gateway_is_no_refusal() {
    let server = DirectServer::saying(Flavour::OpenAi, Said::Text(whole_task().to_string())).await;
    server.refuse_check(403, json!({"message": "no list here"}));
    let place = place_for(Flavour::OpenAi);
    let config = std::fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    let endpoint = format!("[model_endpoint]\nbase_url = \"{}\"\n", server.base_url());
    place.write("ralph.toml", &format!("{config}{endpoint}"));
    let mut command = place.ralph(&["run"]);
    command.env("LITELLM_API_KEY", KEY);
    let ended = tokio::task::block_in_place(|| finish(&mut command));
    ended.expect(
        3,
        &[
            "not verified: ",
            "answered with HTTP 403: no list here",
            "iteration 1 with",
        ],
    );
}

#[rstest]
#[case::no_credit_at_zai(Flavour::Zai, 429, json!({"code": "1113", "message": "Insufficient balance"}))]
#[case::no_credit_at_openrouter(Flavour::OpenRouter, 402, json!({"code": 402, "message": "Insufficient credits"}))]
#[case::no_such_model(Flavour::Ollama, 404, json!({"message": "model \"qwen3\" not found, try pulling it first", "type": "api_error"}))]
#[tokio::test]
async fn what_waiting_does_not_mend_is_not_waited_for(
    #[case] flavour: Flavour,
    #[case] status: u16,
    #[case] error: Value,
) {
    let words = error["message"].as_str().unwrap().to_owned();
    let server = DirectServer::saying(flavour, Said::Error(status, error)).await;
    let error = ask(&server, flavour, KEY).await.unwrap_err();
    assert!(matches!(&error, ModelError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains(&words), "{error}");
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_history_costs_the_same_by_litellm_and_directly() {
    let executable = need!(executable());
    let flavours = [Flavour::Zai, Flavour::OpenAi, Flavour::Anthropic];
    let mut servers = Vec::new();
    for flavour in flavours {
        servers.push(DirectServer::saying(flavour, Said::Text("done".to_owned())).await);
    }
    let of_proxy = flavours.iter().zip(&servers).map(|(flavour, server)| {
        let model = model_of(*flavour);
        json!({"model_name": model, "litellm_params": {"model": model, "api_base": server.base_url(), "api_key": KEY}})
    });
    let proxy = Proxy::start(&executable, &of_proxy.collect::<Vec<_>>()).await;
    let endpoint = ModelEndpoint::parse(&proxy.address).unwrap();
    let by_litellm = OpenAiCompatible::new(endpoint, Some(Secret::new(MASTER_KEY)), quick()).unwrap();
    for (flavour, server) in flavours.iter().zip(&servers) {
        let mut of_litellm = call(*flavour, "hi");
        of_litellm.profile.temperature = None;
        of_litellm.profile.list_price = None;
        let by_litellm = by_litellm.answer(&of_litellm, &mut |_| {}).await;
        let by_litellm = by_litellm.unwrap_or_else(|error| panic!("{flavour:?}: {error:?}\n{}", proxy.log()));
        let directly = ask(server, *flavour, KEY).await.unwrap();
        assert_eq!(by_litellm.tokens, directly.tokens, "{flavour:?}");
        let (theirs, ours) = (by_litellm.cost.unwrap(), directly.cost.unwrap());
        // Theirs is a sum of floating-point numbers, rounded up to a billionth of a dollar.
        let rounding = Usd::from_dollars(2e-9).unwrap();
        assert!(
            theirs.max(ours).saturating_sub(theirs.min(ours)) <= rounding,
            "{flavour:?}: {theirs:?} by LiteLLM, {ours:?} directly"
        );
    }
}

/// A task that only money bounds.
fn task() -> String {
    TASK.replace("max_tokens_total: 1000000", "max_cost_usd_estimate: 1")
}

fn place_for(flavour: Flavour) -> Place {
    let place = Place::new();
    place.write("ralph_task.md", &task());
    let model = model_of(flavour);
    place.write(
        "ralph.toml",
        &format!(
            "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n\
             [models.default-cheap]\nlitellm_model = \"{model}\"\n"
        ),
    );
    place
}

fn at(command: &mut Command, server: &DirectServer, flavour: Flavour) {
    command.env(service_of(flavour).url_variable, server.base_url());
}

#[rstest]
#[case::zai(Flavour::Zai, "found in `ZAI_API_KEY`, not verified")]
#[case::openai(Flavour::OpenAi, "accepts `OPENAI_API_KEY`")]
#[case::anthropic(Flavour::Anthropic, "accepts `ANTHROPIC_API_KEY`")]
#[case::openrouter(Flavour::OpenRouter, "accepts `OPENROUTER_API_KEY`")]
#[case::gemini(Flavour::Gemini, "accepts `GEMINI_API_KEY`")]
#[case::ollama(Flavour::Ollama, "without a key; its models cost nothing")]
#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_the_env_file_is_enough_for_a_run(#[case] flavour: Flavour, #[case] checked: &str) {
    let server = DirectServer::saying(flavour, Said::Text(whole_task().to_string())).await;
    let place = place_for(flavour);
    if let Some(variable) = service_of(flavour).key_variable {
        place.write(".env", &format!("{variable}={KEY}\n"));
    }
    let mut command = place.ralph(&["run"]);
    at(&mut command, &server, flavour);
    let ended = tokio::task::block_in_place(|| finish(&mut command));
    ended.expect(0, &["credential of actions", checked, "done: "]);
    assert!(!format!("{ended:?}").contains(KEY), "{ended:?}");
    let status = place.status();
    let cost = status["cost_usd"].as_f64().unwrap_or(-1.0);
    assert_eq!(cost > 0.0, flavour != Flavour::Ollama, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_wrong_key_is_named_before_the_first_call() {
    let flavour = Flavour::OpenAi;
    let server = DirectServer::saying(flavour, Said::Text("no".to_owned())).await;
    let place = place_for(flavour);
    let mut command = place.ralph(&["run"]);
    at(&mut command, &server, flavour);
    tokio::task::block_in_place(|| finish(&mut command)).expect(
        1,
        &[
            "`OPENAI_API_KEY` is not set, the key of OpenAI, for the model `openai/gpt-5-mini`",
            "set `OPENAI_API_KEY` in `.env`",
            "model_endpoint.base_url",
        ],
    );
    let mut command = place.ralph(&["resume", &place.run_id()]);
    at(&mut command, &server, flavour);
    command.env("OPENAI_API_KEY", "sk-wrong");
    let ended = tokio::task::block_in_place(|| finish(&mut command));
    ended.expect(
        1,
        &["refused it (HTTP 401)", "put a valid one into `OPENAI_API_KEY`"],
    );
    assert!(server.calls().is_empty());
}

#[test]
fn a_model_without_a_service_needs_litellm() {
    let place = place_for(Flavour::Zai);
    let args = ["run", "--set", "models.default-cheap.litellm_model=mistral/large"];
    place.run(&args).expect(
        1,
        &[
            "no service is known for the model `mistral/large`",
            "set model_endpoint.base_url to a LiteLLM",
            "`zai/`, `openai/`",
        ],
    );
}

#[test]
fn an_unknown_price_needs_a_bound_on_tokens() {
    let place = place_for(Flavour::Zai);
    place.write(".env", &format!("ZAI_API_KEY={KEY}\n"));
    let args = ["run", "--set", "models.default-cheap.litellm_model=zai/glm-0"];
    place.run(&args).expect_refused(&[
        "the price of the model `zai/glm-0` is unknown",
        "budget.max_tokens_total (`max_tokens_total` in the task)",
    ]);
    assert!(place.runs().is_empty());
}

#[test]
fn models_are_listed_with_route_key_and_price() {
    let place = place_for(Flavour::Zai);
    place.write(".env", &format!("ZAI_API_KEY={KEY}\n"));
    place.write(
        "config/models.yaml",
        "profiles:\n  here:\n    litellm_model: ollama/qwen3\n  odd:\n    litellm_model: mistral/large\n",
    );
    let ended = place.run(&["models"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in [
        "default-cheap    zai/glm-4.7                  Z.ai at https://api.z.ai/api/paas/v4; ZAI_API_KEY found; $0.6 in, $2.2 out per million tokens",
        "strong-doctor    anthropic/claude-opus-4-5    Anthropic at https://api.anthropic.com; ANTHROPIC_API_KEY missing; $5 in, $25 out per million tokens",
        "here             ollama/qwen3                 Ollama at http://127.0.0.1:11434/v1; no key needed; costs nothing: it runs here",
        "odd              mistral/large                no service; set model_endpoint.base_url; price unknown: set max_tokens_total",
    ] {
        assert!(
            ended.stdout.lines().any(|said| said == line),
            "{line}\n{}",
            ended.stdout
        );
    }
    assert!(!ended.stdout.contains(KEY));
    let through = place.run(&[
        "models",
        "--json",
        "--set",
        "model_endpoint.base_url=http://127.0.0.1:4000",
    ]);
    let rows: Value = serde_json::from_str(&through.stdout).unwrap();
    assert_eq!(
        (
            &rows[0]["route"],
            &rows[0]["key_variable"],
            &rows[0]["price_from"]
        ),
        (
            &json!("model_endpoint.base_url"),
            &json!("LITELLM_API_KEY"),
            &json!("endpoint")
        )
    );
    let prices = place.run(&["models", "--prices"]).stdout;
    assert!(prices.contains(&PriceTable::shipped().release), "{prices}");
    assert!(prices.contains("zai/glm-4.7"), "{prices}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_the_key_of_its_fallback_says_so() {
    let server = DirectServer::saying(Flavour::Zai, Said::Text(whole_task().to_string())).await;
    let place = place_for(Flavour::Zai);
    let mut command = place.ralph(&["run"]);
    at(&mut command, &server, Flavour::Zai);
    command.env("ZAI_API_KEY", KEY);
    tokio::task::block_in_place(|| finish(&mut command)).expect(
        0,
        &[
            "the profile `strong-doctor` cannot be used (`ANTHROPIC_API_KEY` is not set, the key of Anthropic)",
            "`default-cheap` diagnoses it",
        ],
    );
}
