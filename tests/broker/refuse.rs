//! What is refused, in the words of the service, before it reaches the service.

use ralph::credential::CredentialSource;
use ralph::gateway::Phantom;
use ralph::gateway::broker::{Broker, BrokerHandle, BrokerService, CallExceptions, ModelUpstream};
use ralph::secret::Secret;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::model_service::{Answer, KEY, ModelService, USED};
use crate::world::{World, body};

#[rstest]
#[case::nothing(None, "does not contain the phantom")]
#[case::own_key(Some("sk-ant-api03-own"), "not the phantom of this run")]
#[case::another_runs_phantom(Some("ANOTHER"), "not the phantom of this run")]
#[tokio::test]
async fn only_the_phantom_of_the_run_is_served(#[case] shown: Option<&str>, #[case] said: &str) {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    let another = Phantom::random().unwrap();
    let mut call = world.bare("/v1/messages", &body("", "m", false));
    if let Some(shown) = shown {
        call = call.header(
            "x-api-key",
            if shown == "ANOTHER" {
                another.expose()
            } else {
                shown
            },
        );
    }
    let response = call.send().await.unwrap();
    assert_eq!(response.status(), 403);
    let error: Value = response.json().await.unwrap();
    assert_eq!(
        (&error["type"], &error["error"]["type"]),
        (&json!("error"), &json!("permission_error"))
    );
    assert!(
        error["error"]["message"].as_str().unwrap().contains(said),
        "{error}"
    );
    assert!(service.requests().is_empty());
    assert_eq!(world.meter.spent().calls, 0);
}

#[rstest]
#[case::another_path("POST", "/v1/files")]
#[case::the_account("GET", "/api/oauth/profile")]
#[case::a_longer_path("POST", "/v1/messages/batches")]
#[case::a_slash_more("POST", "/v1/messages/")]
#[case::a_way_around("POST", "/v1/messages/../files")]
#[case::spelled_otherwise("POST", "/v1/m%65ssages")]
#[case::another_method("GET", "/v1/messages")]
#[case::of_another_service("POST", "/v1/responses")]
#[tokio::test]
async fn the_credential_is_for_a_few_paths(#[case] method: &str, #[case] path: &str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(ralph::model::ANTHROPIC_KEY, &service).await;
    // By hand, since clients clean paths.
    let mut stream = tokio::net::TcpStream::connect(world.address).await.unwrap();
    let phantom = world.phantom.expose();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {phantom}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(
        answer.contains(&format!("no credential is added to {method} {path}")),
        "{answer}"
    );
    assert!(service.requests().is_empty());
}

#[rstest]
#[case::compressed(Some(("content-encoding", "zstd")), "{}", 415)]
#[case::no_json(None, "hello", 400)]
#[case::said_twice(
    None,
    r#"{"model":"m","max_output_tokens":1,"max_output_tokens":100000,"input":"x"}"#,
    400
)]
#[case::own_endpoint(None, r#"{"model":"m","api_base":"http://127.0.0.1:9","input":"x"}"#, 400)]
#[tokio::test]
async fn a_call_that_cannot_be_counted_is_not_made(
    #[case] header: Option<(&str, &str)>,
    #[case] body: &str,
    #[case] status: u16,
) {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let world = World::new(ralph::model::OPENAI_KEY, &service).await;
    let mut call = world.call("/v1/responses", &Value::Null).body(body.to_owned());
    if let Some((name, value)) = header {
        call = call.header(name, value);
    }
    let response = call.send().await.unwrap();
    assert_eq!(response.status(), status);
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["error"]["type"], "invalid_request_error", "{error}");
    assert!(service.requests().is_empty());
}

/// Two runs of one broker: neither phantom opens the other's handle.
#[tokio::test]
async fn a_phantom_is_good_for_its_own_run() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let [own, other] = [
        World::new(ralph::model::ANTHROPIC_KEY, &service).await,
        World::new(ralph::model::ANTHROPIC_KEY, &service).await,
    ];
    let upstream = ModelUpstream::new(
        ralph::model::ANTHROPIC_KEY,
        CredentialSource::Fixed(Secret::new(KEY)),
        Some(&service.base_url()),
    );
    let broker = Broker::new([BrokerService::Model(upstream.unwrap())], Vec::new()).unwrap();
    let handles = [&own, &other].map(|world| {
        broker.register(
            world.phantom.clone(),
            world.meter.clone(),
            CallExceptions::default(),
        )
    });
    for (handle, world) in handles.iter().zip([&own, &other]) {
        let address = listen(handle).await;
        let health = world
            .http
            .get(format!("http://{address}/health"))
            .send()
            .await
            .unwrap();
        assert_eq!(health.json::<Value>().await.unwrap()["runs"], 2);
        for phantom in [&own.phantom, &other.phantom] {
            let call = world
                .http
                .post(format!("http://{address}/v1/messages"))
                .json(&body("", "m", false));
            let call = call
                .header("anthropic-version", "2023-06-01")
                .header("x-api-key", phantom.expose());
            let expected = if phantom.expose() == world.phantom.expose() {
                200
            } else {
                403
            };
            assert_eq!(call.send().await.unwrap().status().as_u16(), expected);
        }
    }
}

async fn listen(handle: &BrokerHandle) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (handle, host) = (handle.clone(), "api.anthropic.com".parse().unwrap());
    tokio::spawn(async move { handle.serve(listener, &host).await });
    address
}
