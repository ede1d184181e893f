//! The real credential goes to its service, and nothing of the sandbox's does.

use ralph::credential::{CredentialKind, CredentialSource};
use ralph::gateway::broker::{Broker, BrokerService, CallExceptions, ModelUpstream};
use ralph::gateway::meter::{Allowance, MeterNotice};
use ralph::secret::Secret;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::model_service::{Answer, KEY, ModelService, USED};
use crate::world::{World, body};

#[rstest]
#[case::key(ralph::model::ANTHROPIC_KEY, "/v1/messages", ("x-api-key", KEY.to_owned()))]
#[case::openai(ralph::model::OPENAI_KEY, "/v1/responses", ("authorization", format!("Bearer {KEY}")))]
#[case::chat(ralph::model::OPENAI_KEY, "/v1/chat/completions", ("authorization", format!("Bearer {KEY}")))]
#[case::gateway(ralph::model::GATEWAY_KEY, "/v1/messages", ("authorization", format!("Bearer {KEY}")))]
#[tokio::test]
async fn the_phantom_becomes_the_credential(
    #[case] kind: CredentialKind,
    #[case] path: &str,
    #[case] expected: (&str, String),
) {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(kind, &service).await;
    let (parameter, beta) = if path == "/v1/messages" {
        ("beta=true", "anthropic-beta")
    } else {
        ("limit=1", "openai-beta")
    };
    let call = world
        .call(
            &format!("{path}?{parameter}&api_key=sk-own"),
            &body(path, "m", false),
        )
        .header(beta, "one,two")
        .header("cookie", "session=own")
        .header("x-litellm-api-key", "sk-own")
        .header("accept-encoding", "gzip, br");
    let response = call.send().await.unwrap();
    assert_eq!(response.status(), 200);

    let seen = &service.requests()[0];
    assert_eq!(seen.target, format!("{path}?{parameter}"));
    let authenticating = ["authorization", "x-api-key", "cookie", "x-litellm-api-key"];
    let sent: Vec<(&str, String)> = authenticating
        .into_iter()
        .filter_map(|name| Some((name, seen.headers.get(name)?.clone())))
        .collect();
    assert_eq!(sent, [expected]);
    let header = |name: &str| seen.headers.get(name).map(String::as_str);
    assert_eq!(
        (header(beta), header("accept-encoding")),
        (Some("one,two"), Some("identity"))
    );
    assert_eq!(header("anthropic-version").is_some(), path == "/v1/messages");
    let written = std::fs::read_to_string(world.file()).unwrap();
    assert!(
        !written.contains("CANARY") && !written.contains(world.phantom.expose()),
        "{written}"
    );
    let everything = format!("{seen:?}");
    assert!(
        !everything.contains(world.phantom.expose()) && !everything.contains("sk-own"),
        "{everything}"
    );
}

#[tokio::test]
async fn free_calls_are_not_metered() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let listed = world.http.get(format!("http://{}/v1/models", world.address));
    let listed = listed.bearer_auth(world.phantom.expose()).send().await.unwrap();
    assert_eq!(listed.status(), 200);
    assert_eq!(world.meter.spent().calls, 0);
}

#[tokio::test]
async fn a_refused_credential_is_reported_with_a_remedy() {
    let service = ModelService::scripted("another-key-entirely", |_| Answer::Words(USED)).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let response = world
        .call("/v1/messages", &body("", "m", true))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 401);
    let said: Value = response.json().await.unwrap();
    let expected = "ralph: api.anthropic.com: the service refused the stored credential; on the host, \
                    store the Anthropic API key with `ralph token store`";
    let error = json!({"type": "authentication_error", "message": expected});
    assert_eq!(said, json!({"type": "error", "error": error}));
    let notice = MeterNotice::CredentialRefused {
        reason: expected.to_owned(),
    };
    assert!(world.notices().contains(&notice), "{:?}", world.notices());
    assert_eq!(world.meter.spent().tokens.total(), 0);
}

/// Some services repeat the key in what they say.
#[tokio::test]
async fn the_credential_does_not_come_back() {
    let repeated = || {
        let headers = vec![
            ("content-type", "application/json".to_owned()),
            ("x-key", KEY.to_owned()),
        ];
        Answer::Exactly(
            400,
            headers,
            format!(r#"{{"error":{{"message":"your key {KEY} is odd","type":"x"}}}}"#),
        )
    };
    let service = ModelService::scripted(KEY, move |_| repeated()).await;
    let world = World::new(ralph::model::OPENAI_KEY, &service).await;
    let response = world
        .call("/v1/responses", &body("/v1/responses", "m", false))
        .send()
        .await
        .unwrap();
    assert_eq!(
        (response.status().as_u16(), response.headers().get("x-key")),
        (400, None)
    );
    assert!(
        response
            .text()
            .await
            .unwrap()
            .contains("your key [redacted] is odd")
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = ModelService::answering(Answer::Words(USED)).await;
    let to = elsewhere.base_url();
    let service = ModelService::scripted(KEY, move |_| {
        Answer::Exactly(
            307,
            vec![("location", format!("{to}/v1/messages"))],
            String::new(),
        )
    })
    .await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let response = world
        .call("/v1/messages", &body("", "m", false))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 502);
    assert!(
        response
            .text()
            .await
            .unwrap()
            .contains("redirects to another address")
    );
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn health_reports_version_mode_and_runs() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let health = world.http.get(format!("http://{}/health", world.address));
    let said: Value = health.send().await.unwrap().json().await.unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        said,
        json!({"status": "ok", "version": version, "mode": "api-key", "runs": 1})
    );
}

/// Real TLS to the service, with roots of the test's own; another certificate is not believed.
#[tokio::test]
async fn the_service_is_reached_by_tls() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let root = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let port = terminate_tls(&made, service.address).await;
    for (roots, expected) in [(vec![root], 200), (Vec::new(), 502)] {
        let source = CredentialSource::Fixed(Secret::new(KEY));
        let base = format!("https://localhost:{port}");
        let upstream = ModelUpstream::new(ralph::model::ANTHROPIC_KEY, source, Some(&base)).unwrap();
        let host = upstream.host.clone();
        let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
        let broker = Broker::new([BrokerService::Model(upstream)], roots).unwrap();
        let handle = broker.register(
            world.phantom.clone(),
            world.meter.clone(),
            CallExceptions::default(),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { handle.serve(listener, &host).await });
        let call = world
            .http
            .post(format!("http://{address}/v1/messages"))
            .json(&body("", "m", false));
        let call = call
            .header("x-api-key", world.phantom.expose())
            .header("anthropic-version", "2023-06-01");
        assert_eq!(call.send().await.unwrap().status().as_u16(), expected);
        serving.abort();
    }
}

async fn terminate_tls(made: &rcgen::CertifiedKey<rcgen::KeyPair>, to: std::net::SocketAddr) -> u16 {
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else {
                    return;
                };
                let mut service = tokio::net::TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut service).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn a_service_that_is_down_costs_nothing() {
    let source = CredentialSource::Fixed(Secret::new(KEY));
    let upstream =
        ModelUpstream::new(ralph::model::ANTHROPIC_KEY, source, Some("http://127.0.0.1:1")).unwrap();
    let world = World::of(BrokerService::Model(upstream), Allowance::default()).await;
    let response = world
        .call("/v1/messages", &body("", "m", false))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(world.meter.spent().tokens.total(), 0);
}
