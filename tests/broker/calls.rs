//! What a call may have: what agents are known to send, and nothing that makes a service act for the sandbox elsewhere.

use ralph::credential::CredentialSource;
use ralph::gateway::broker::{BrokerService, CallExceptions, ModelUpstream};
use ralph::gateway::meter::Allowance;
use ralph::model::{ANTHROPIC_KEY, CredentialKind, GATEWAY_KEY, GOOGLE, OPENAI_KEY};
use ralph::network::{Policy, PolicyRule};
use ralph::secret::Secret;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::model_service::{Answer, KEY, ModelService, USED};
use crate::world::{World, body};

/// The calls of the real agents, as they were recorded.
#[tokio::test]
async fn calls_as_agents_make_them_are_forwarded() {
    let recorded = include_str!("../fixtures/agents/requests.jsonl");
    let answer = Answer::Exactly(200, Vec::new(), "{}".to_owned());
    let service = ModelService::answering(answer).await;
    for line in recorded.lines() {
        let request: Value = serde_json::from_str(line).unwrap();
        let kinds: &[CredentialKind] = match request["agent"].as_str().unwrap() {
            "claude" => &[ANTHROPIC_KEY, GATEWAY_KEY],
            "gemini" => &[GOOGLE.credentials[0]],
            _ => &[OPENAI_KEY, GATEWAY_KEY],
        };
        for kind in kinds {
            let world = World::new(kind, &service).await;
            let before = service.requests().len();
            let url = format!("http://{}{}", world.address, request["target"].as_str().unwrap());
            let mut call = world
                .http
                .post(url)
                .bearer_auth(world.phantom.expose())
                .body(request["body"].to_string());
            for (name, value) in request["headers"].as_object().unwrap() {
                call = call.header(name, value.as_str().unwrap());
            }
            let response = call.send().await.unwrap();
            let text = response.text().await.unwrap();
            assert_eq!(
                service.requests().len(),
                before + 1,
                "{} {kind}: {text}",
                request["agent"]
            );
        }
    }
}

/// What is refused before it reaches the service, by its name.
async fn refused(kind: CredentialKind, path: &str, added: Value) -> String {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(kind, &service).await;
    let mut call = body(path.trim_end_matches("/count_tokens"), "m", false);
    let Value::Object(added) = added else {
        panic!("{added} is no object")
    };
    call.as_object_mut().unwrap().extend(added);
    let response = world.call(path, &call).send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    assert_eq!((status, service.requests().len()), (400, 0), "{text}");
    assert_eq!(world.meter.spent().calls, 0);
    text
}

#[rstest]
#[case("api_base", json!("http://127.0.0.1:9"))]
#[case("base_url", json!("http://127.0.0.1:9"))]
#[case("api_key", json!("sk-own"))]
#[case("aws_access_key_id", json!("x"))]
#[case("aws_bedrock_runtime_endpoint", json!("http://127.0.0.1:9"))]
#[case("vertex_project", json!("x"))]
#[case("vertex_credentials", json!("{}"))]
#[case("litellm_params", json!({"api_base": "http://127.0.0.1:9"}))]
#[case("litellm_metadata", json!({}))]
#[case("langfuse_host", json!("http://127.0.0.1:9"))]
#[case("langfuse_public_key", json!("x"))]
#[case("input_cost_per_token", json!(0))]
#[case("output_cost_per_token", json!(0))]
#[case("custom_llm_provider", json!("openai"))]
#[case("mock_response", json!("hi"))]
#[case("fallbacks", json!([{"model": "x"}]))]
#[case("extra_headers", json!({"x": "y"}))]
#[case("extra_body", json!({}))]
#[case("mcp_servers", json!([{"url": "https://x"}]))]
#[case("guardrails", json!([]))]
#[case("tags", json!(["x"]))]
#[tokio::test]
async fn fields_that_choose_another_service_are_refused(
    #[case] field: &str,
    #[case] value: Value,
    #[values(
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/v1/chat/completions"
    )]
    path: &str,
) {
    let said = refused(GATEWAY_KEY, path, json!({ field: value })).await;
    assert!(said.contains(&format!("`{field}`")), "{said}");
    assert!(said.contains("allowed_fields in [sandbox.model_calls]"), "{said}");
}

#[rstest]
#[case::image("/v1/messages", json!({"type": "image", "source": {"type": "url", "url": "https://evil.example/a.png"}}))]
#[case::document("/v1/messages", json!({"type": "document", "source": {"type": "url", "url": "https://evil.example/a"}}))]
#[case::in_a_result("/v1/messages", json!({"type": "tool_result", "tool_use_id": "t", "content":
    [{"type": "image", "source": {"type": "url", "url": "https://evil.example/a.png"}}]}))]
#[case::chat("/v1/chat/completions", json!({"type": "image_url", "image_url": {"url": "https://evil.example/a.png"}}))]
#[case::chat_text("/v1/chat/completions", json!({"type": "image_url", "image_url": "https://evil.example/a.png"}))]
#[case::responses("/v1/responses", json!({"type": "input_image", "image_url": "https://evil.example/a.png"}))]
#[case::file("/v1/responses", json!({"type": "input_file", "file_url": "https://evil.example/a.pdf"}))]
#[tokio::test]
async fn content_is_loaded_from_allowed_hosts_only(#[case] path: &str, #[case] part: Value) {
    let field = if path == "/v1/responses" {
        "input"
    } else {
        "messages"
    };
    let call = |host: &str| {
        let text = part.to_string().replace("evil.example", host);
        let part: Value = serde_json::from_str(&text).unwrap();
        json!({field: [{"role": "user", "content": [part]}]})
    };
    let said = refused(GATEWAY_KEY, path, call("evil.example")).await;
    assert!(
        said.contains("https://evil.example/a") && said.contains("[sandbox.network]"),
        "{said}"
    );

    let service = ModelService::answering(Answer::Words(USED)).await;
    let source = CredentialSource::Fixed(Secret::new(KEY));
    let upstream = ModelUpstream::new(GATEWAY_KEY, source, Some(&service.base_url())).unwrap();
    let exceptions = CallExceptions {
        policy: Some(Policy::allowlist([PolicyRule::parse("images.example").unwrap()])),
        ..CallExceptions::default()
    };
    let world = World::with(BrokerService::Model(upstream), Allowance::default(), exceptions).await;
    for (host, expected) in [("images.example", 200), ("evil.example", 400)] {
        let mut whole = body(path, "m", false);
        whole[field] = call(host)[field].clone();
        let response = world.call(path, &whole).send().await.unwrap();
        assert_eq!(response.status().as_u16(), expected);
    }
    assert_eq!(service.requests().len(), 1);
}

#[rstest]
#[case::stored_file("/v1/messages", json!({"messages": [{"role": "user", "content":
    [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]}), "messages[].content[].source.")]
#[case::stored_file("/v1/chat/completions", json!({"messages": [{"role": "user", "content":
    [{"type": "file", "file": {"file_id": "f"}}]}]}), "messages[].content[].file.file_id")]
#[case::web_fetch("/v1/messages", json!({"tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}]}), "web_fetch_20250910")]
#[case::code("/v1/messages", json!({"tools": [{"type": "code_execution_20250825", "name": "c"}]}), "code_execution_20250825")]
#[case::code("/v1/responses", json!({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}), "`tools[]")]
#[case::mcp("/v1/responses", json!({"tools": [{"type": "mcp", "server_url": "https://evil.example"}]}), "`tools[]")]
#[case::mcp_deep("/v1/responses", json!({"input": [{"type": "additional_tools", "tools": [{"type": "mcp"}]}]}), "`tools[].type` must not be `mcp`")]
#[case::tier("/v1/chat/completions", json!({"service_tier": "express"}), "`service_tier` must not be `express`")]
#[tokio::test]
async fn other_sources_and_tools_are_refused(#[case] path: &str, #[case] added: Value, #[case] said: &str) {
    let text = refused(GATEWAY_KEY, path, added).await;
    assert!(text.contains(said), "{text}");
}

#[rstest]
#[case("x-original-url", "/v1/files")]
#[case("x-rewrite-url", "/v1/files")]
#[case("x-forwarded-host", "evil.example")]
#[case("forwarded", "host=evil.example")]
#[case("x-http-method-override", "DELETE")]
#[case("x-litellm-tags", "other")]
#[case("helicone-target-url", "https://evil.example")]
#[case("x-portkey-custom-host", "https://evil.example")]
#[tokio::test]
async fn headers_that_lead_elsewhere_are_refused(#[case] name: &str, #[case] value: &str) {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(GATEWAY_KEY, &service).await;
    let call = world
        .call("/v1/messages", &body("", "m", false))
        .header(name, value);
    let response = call.send().await.unwrap();
    assert_eq!((response.status().as_u16(), service.requests().len()), (400, 0));
    let text = response.text().await.unwrap();
    assert!(
        text.contains(&format!("`{name}`")) && text.contains("allowed_headers in [sandbox.model_calls]"),
        "{text}"
    );
}

#[tokio::test]
async fn what_the_configuration_allows_is_forwarded() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let source = CredentialSource::Fixed(Secret::new(KEY));
    let upstream = ModelUpstream::new(GATEWAY_KEY, source, Some(&service.base_url())).unwrap();
    let exceptions = CallExceptions {
        fields: vec!["new_field".to_owned()],
        headers: vec!["X-New-Header".to_owned()],
        policy: None,
    };
    let world = World::with(BrokerService::Model(upstream), Allowance::default(), exceptions).await;
    let mut whole = body("", "m", false);
    whole["new_field"] = json!({"a": 1});
    let call = world.call("/v1/messages", &whole).header("x-new-header", "1");
    assert_eq!(call.send().await.unwrap().status(), 200);
    let seen = &service.requests()[0];
    assert_eq!(seen.body["new_field"], json!({"a": 1}));
    assert_eq!(seen.headers["x-new-header"], "1");
}

#[tokio::test]
async fn a_count_of_tokens_is_metered() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let allowance = Allowance {
        cost: None,
        tokens: Some(350),
    };
    let world = World::bounded(GATEWAY_KEY, &service, allowance).await;
    let call = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    let mut statuses = Vec::new();
    for _ in 0..5 {
        let response = world
            .call("/v1/messages/count_tokens", &call)
            .send()
            .await
            .unwrap();
        statuses.push(response.status().as_u16());
        response.text().await.unwrap();
    }
    // Each counts the 100 tokens that the service reports, and may use 63.
    assert_eq!(statuses, [200, 200, 200, 402, 402]);
    assert_eq!(world.meter.spent().tokens.total(), 300);
}
