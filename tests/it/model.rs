//! The OpenAI-compatible client against a scripted server, and against what LiteLLM was recorded to say.

use std::time::Duration;

use proptest::prelude::*;
use ralph::model::{
    AttemptError, CallTimeouts, Model, ModelEndpoint, ModelError, ModelMessage, ModelReply, OpenAiCompatible,
};
use ralph::secret::Secret;
use ralph::usage::{Price, Tokens, Usd};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::chat_server::{Answer, ChatServer, Completion, Piece};
use crate::support::model::{quick, request};

const KEY: &str = "sk-canary-0123456789";

fn client(server: &ChatServer, key: Option<&str>) -> OpenAiCompatible {
    client_at(&server.base_url(), key)
}

fn client_at(base: &str, key: Option<&str>) -> OpenAiCompatible {
    OpenAiCompatible::new(ModelEndpoint::parse(base).unwrap(), key.map(Secret::new), quick()).unwrap()
}

/// Asks a server that gives these answers.
async fn ask(answers: impl IntoIterator<Item = Answer>) -> Result<ModelReply, ModelError> {
    let server = ChatServer::start(answers).await;
    client(&server, Some(KEY))
        .answer(&request("hi"), &mut |_| {})
        .await
}

fn usd(amount: f64) -> Usd {
    Usd::from_dollars(amount).unwrap()
}

/// An answer of LiteLLM's, as recorded.
fn recorded(name: &str) -> Answer {
    let file = format!(
        "{}/tests/fixtures/litellm/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let recording: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let response = &recording["response"];
    let framing = ["content-length", "transfer-encoding", "connection"];
    let headers = response["headers"].as_array().unwrap().iter();
    let headers = headers.map(|pair| {
        (
            pair[0].as_str().unwrap().to_lowercase(),
            pair[1].as_str().unwrap().to_owned(),
        )
    });
    let body = match &response["body"] {
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    Answer::Exactly {
        status: response["status"].as_u64().unwrap().try_into().unwrap(),
        headers: headers
            .filter(|(name, _)| !framing.contains(&name.as_str()))
            .collect(),
        pieces: vec![Piece::Bytes(body.into_bytes())],
    }
}

#[rstest]
#[case("upstream-chat-completions-stream", "hello", (1000, 200), 0.000_991)]
#[case("chat-completions-stream", "hello from mock", (8, 3), 0.000_011_4)]
#[case("upstream-chat-completions", "hello upstream", (1000, 200), 0.000_991)]
#[case("chat-completions-gpt4o", "hello from mock gpt", (10, 20), 0.000_225)]
#[tokio::test]
async fn a_recorded_answer_has_text_tokens_and_cost(
    #[case] recording: &str,
    #[case] text: &str,
    #[case] (input, output): (u64, u64),
    #[case] cost: f64,
) {
    let reply = ask([recorded(recording)]).await.unwrap();
    assert_eq!(reply.text, text);
    assert_eq!(reply.tokens, Some(Tokens { input, output }));
    let off = reply.cost.unwrap().dollars() - cost;
    assert!((0.0..2e-9).contains(&off), "{:?}", reply.cost);
    assert!(!reply.cut_off);
}

#[rstest]
#[case("chat-completions-bad-key", Some(KEY), "Unauthorized 400")]
#[case("chat-completions-no-key", None, "Unauthorized 500")]
#[case("chat-completions-no-key", Some(KEY), "Unavailable after 4")]
#[case(
    "chat-completions-unknown-model",
    Some(KEY),
    "Refused 400: /chat/completions: Invalid model name"
)]
#[case("upstream-chat-401", Some(KEY), "Unauthorized 401")]
#[case("upstream-chat-429", Some(KEY), "RateLimited for Some(1s)")]
#[case(
    "upstream-chat-500",
    Some(KEY),
    "Unavailable after 4: HTTP 500: litellm.InternalServerError"
)]
#[tokio::test]
async fn a_recorded_refusal_is_understood(
    #[case] recording: &str,
    #[case] key: Option<&str>,
    #[case] expected: &str,
) {
    let server = ChatServer::start(vec![recorded(recording); 4]).await;
    let error = client(&server, key)
        .answer(&request("hi"), &mut |_| {})
        .await
        .unwrap_err();
    assert!(summary(&error).starts_with(expected), "{}", summary(&error));
}

/// An error in a few words.
fn summary(error: &ModelError) -> String {
    match error {
        ModelError::RateLimited { retry_after, .. } => format!("RateLimited for {retry_after:?}"),
        ModelError::Unauthorized { status, .. } => format!("Unauthorized {status}"),
        ModelError::Refused { status, message, .. } => format!("Refused {status}: {message}"),
        ModelError::Unavailable { attempts, source, .. } => format!("Unavailable after {attempts}: {source}"),
        ModelError::NotConfigured { reason, .. } => format!("NotConfigured: {reason}"),
        ModelError::ScriptExhausted { .. } => "ScriptExhausted".to_owned(),
    }
}

#[tokio::test]
async fn a_call_streams_and_carries_the_profile_and_the_key() {
    let server = ChatServer::serve(Some(KEY), |_| Answer::text("grüße 🦀")).await;
    let mut seen = Vec::new();
    let mut on_text = |text: &str| seen.push(text.to_owned());
    let reply = client(&server, Some(KEY))
        .answer(&request("hi"), &mut on_text)
        .await
        .unwrap();
    assert_eq!(reply.text, "grüße 🦀");
    assert_eq!(seen, ["grü", "ße ", "🦀"]);
    let sent = server.requests();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].path, "/v1/chat/completions");
    assert_eq!(sent[0].headers["authorization"], format!("Bearer {KEY}"));
    let expected = json!({
        "model": "zai/glm-4.7",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2048,
        "temperature": 0.2,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(sent[0].body, expected);
}

#[rstest]
#[case(Some("sk-wrong-0123456789"))]
#[case(None)]
#[tokio::test]
async fn a_server_that_wants_another_key_is_understood(#[case] key: Option<&str>) {
    let server = ChatServer::serve(Some(KEY), |_| Answer::text("never said")).await;
    let error = client(&server, key)
        .answer(&request("hi"), &mut |_| {})
        .await
        .unwrap_err();
    assert_eq!(summary(&error), "Unauthorized 401");
}

#[tokio::test]
async fn a_conversation_without_a_word_is_refused() {
    let server = ChatServer::start([]).await;
    let mut request = request("hi");
    request.messages.clear();
    let error = client(&server, None)
        .answer(&request, &mut |_| {})
        .await
        .unwrap_err();
    assert_eq!(
        summary(&error),
        "Refused 400: messages: a list of messages is required"
    );
}

#[tokio::test]
async fn without_a_key_no_authorization_is_sent() {
    let server = ChatServer::start([Answer::text("ok")]).await;
    client(&server, None)
        .answer(&request("hi"), &mut |_| {})
        .await
        .unwrap();
    assert!(!server.requests()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn an_answer_in_one_body_is_read_too() {
    let server = ChatServer::start([Answer::exactly(
        200,
        "application/json",
        json!({"model": "m-1", "choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]})
            .to_string(),
    )])
    .await;
    let mut seen = String::new();
    let reply = client(&server, None)
        .answer(&request("hi"), &mut |text| seen.push_str(text))
        .await
        .unwrap();
    assert_eq!(
        (reply.text.as_str(), reply.model.as_str(), seen.as_str()),
        ("whole", "m-1", "whole")
    );
    assert_eq!((reply.tokens, reply.cost), (None, None));
}

#[tokio::test]
async fn an_answer_cut_off_at_its_limit_says_so() {
    let completion = Completion {
        text: "half a".to_owned(),
        finish_reason: "length",
        usage: None,
    };
    assert!(ask([Answer::Completion(completion)]).await.unwrap().cut_off);
}

/// A whole answer in one body with this usage and, where given, LiteLLM's header.
fn body_with(usage: &Value, header: Option<&str>) -> Answer {
    let body = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}], "usage": usage});
    let answer = Answer::exactly(200, "application/json", body.to_string());
    match header {
        Some(cost) => answer.with_header("x-litellm-response-cost", cost),
        None => answer,
    }
}

/// The same as a stream.
fn stream_with(usage: &Value, header: Option<&str>) -> Answer {
    let end = json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage});
    let answer = Answer::stream([Piece::event(&end), Piece::Bytes(b"data: [DONE]\n\n".to_vec())]);
    match header {
        Some(cost) => answer.with_header("x-litellm-response-cost", cost),
        None => answer,
    }
}

#[rstest]
#[case::the_header(body_with, (Some("0.5"), Some(0.25)), false, Some(0.5))]
#[case::the_usage(body_with, (Some("0.25"), Some(0.5)), false, Some(0.5))]
#[case::a_dearer_header(body_with, (Some("5.5"), Some(0.25)), true, Some(5.5))]
#[case::a_dearer_usage(body_with, (None, Some(5.5)), true, Some(5.5))]
#[case::a_dearer_price(body_with, (Some("0.5"), Some(0.25)), true, Some(3.0))]
#[case::the_price(body_with, (None, None), true, Some(3.0))]
#[case::else_unknown(body_with, (None, None), false, None)]
#[case::a_zero_header_says_nothing(body_with, (Some("0.0"), None), true, Some(3.0))]
#[case::zeros_are_not_known(body_with, (Some("0"), Some(0.0)), false, None)]
#[case::a_negative_cost_is_none(body_with, (Some("-1"), Some(-1.0)), false, None)]
#[case::nonsense_is_none(body_with, (Some("NaN"), None), false, None)]
#[case::a_stream_goes_by_its_usage(stream_with, (Some("0.5"), Some(0.25)), false, Some(0.25))]
#[case::a_streams_header_does_not_count(stream_with, (Some("0.5"), None), false, None)]
#[tokio::test]
async fn the_cost_is_the_dearest_known_one(
    #[case] answer: fn(&Value, Option<&str>) -> Answer,
    #[case] (header, in_usage): (Option<&str>, Option<f64>),
    #[case] priced: bool,
    #[case] expected: Option<f64>,
) {
    let usage = json!({"prompt_tokens": 1_000_000, "completion_tokens": 1_000_000, "cost": in_usage});
    let server = ChatServer::start([answer(&usage, header)]).await;
    let mut request = request("hi");
    request.profile.price = priced.then(|| Price {
        input_per_million: usd(1.0),
        output_per_million: usd(2.0),
    });
    let reply = client(&server, None).answer(&request, &mut |_| {}).await.unwrap();
    assert_eq!(reply.cost, expected.map(usd));
}

#[rstest]
#[case(Answer::error(429, "slow down").with_header("retry-after", "7"), "RateLimited for Some(7s)")]
#[case(Answer::error(429, "slow down"), "RateLimited for None")]
#[case(Answer::error(529, "overloaded"), "RateLimited for None")]
#[case(Answer::error(503, "back soon").with_header("retry-after", "2"), "RateLimited for Some(2s)")]
#[case(Answer::error(401, "no"), "Unauthorized 401")]
#[case(Answer::error(403, "no"), "Unauthorized 403")]
#[case(Answer::error(404, "no such\n  route"), "Refused 404: no such route")]
#[case(Answer::exactly(400, "text/html", "<p>what?"), "Refused 400: <p>what?")]
#[case(
    Answer::exactly(200, "text/html", "<p>hello"),
    "Refused 200: the answer has the content type text/html"
)]
#[case(
    Answer::exactly(400, "application/json", r#"{"error": "a mere text"}"#),
    "Refused 400: a mere text"
)]
#[case(Answer::error(400, &format!("bad key {KEY}")), "Refused 400: bad key [redacted]")]
#[case(Answer::stream([Piece::delta("a"), Piece::event(&json!({"error": {"message": "m", "code": 429}}))]), "RateLimited for None")]
#[case(Answer::stream([Piece::event(&json!({"error": {"message": "too long", "code": "400"}}))]), "Refused 400: too long")]
#[tokio::test]
async fn what_a_retry_cannot_fix_is_reported_at_once(#[case] answer: Answer, #[case] expected: &str) {
    assert_eq!(summary(&ask([answer]).await.unwrap_err()), expected);
}

#[tokio::test]
async fn a_redirect_is_refused_and_the_key_does_not_travel() {
    let elsewhere = ChatServer::start([Answer::text("stolen")]).await;
    let to = format!("{}/v1/chat/completions", elsewhere.base_url());
    let error = ask([Answer::error(307, "moved").with_header("location", &to)])
        .await
        .unwrap_err();
    assert_eq!(summary(&error), format!("Refused 307: it redirects to {to}"));
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn thoughts_that_a_limit_broke_off_may_have_been_billed() {
    let thought = json!({"model": "m", "choices": [{"index": 0, "delta": {"reasoning_content": "hm"}}]});
    let limit = Piece::event(&json!({"error": {"message": "m", "code": 429}}));
    let error = ask([Answer::stream([Piece::event(&thought), limit])])
        .await
        .unwrap_err();
    let is_counted = matches!(
        error,
        ModelError::RateLimited {
            unmetered_attempts: 1,
            ..
        }
    );
    assert!(is_counted, "{error:?}");
}

#[rstest]
#[case::server_error(Answer::error(500, "oops"), "HTTP 500: oops", 0)]
#[case::bad_gateway(
    Answer::exactly(502, "text/html", "<p>bad gateway"),
    "HTTP 502 without a reason",
    0
)]
#[case::cut_before_any_text(Answer::stream([Piece::Cut]), "the connection was closed in the middle of the answer", 4)]
#[case::cut_amid_the_text(Answer::stream([Piece::delta("a"), Piece::Cut]), "the connection was closed in the middle of the answer", 4)]
#[case::ends_amid_the_text(Answer::stream([Piece::delta("a")]), "the answer ended before the model had finished", 4)]
#[case::done_without_an_end(Answer::stream([Piece::delta("a"), Piece::Bytes(b"data: [DONE]\n\n".to_vec())]), "the answer ended before the model had finished", 4)]
#[case::no_json(Answer::stream([Piece::Bytes(b"data: {oops\n\n".to_vec())]), "the answer is not a chat completion", 4)]
#[case::half_a_body(
    Answer::exactly(200, "application/json", "{\"choices\": ["),
    "the answer is not a chat completion",
    4
)]
#[case::error_in_the_stream(Answer::stream([Piece::event(&json!({"error": {"message": "lost the upstream"}}))]), "error in the middle of the answer: lost the upstream", 4)]
#[tokio::test]
async fn what_a_retry_may_mend_is_tried_four_times(
    #[case] answer: Answer,
    #[case] reason: &str,
    #[case] perhaps_billed: u32,
) {
    let server = ChatServer::start(vec![answer.clone(); 9]).await;
    let error = client(&server, Some(KEY))
        .answer(&request("hi"), &mut |_| {})
        .await
        .unwrap_err();
    assert_eq!(server.requests().len(), 4);
    let ModelError::Unavailable {
        attempts: 4,
        unmetered_attempts,
        source,
        ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (source.to_string().as_str(), unmetered_attempts),
        (reason, perhaps_billed)
    );

    let reply = ask([answer, Answer::text("mended")]).await.unwrap();
    assert_eq!(reply.text, "mended");
    assert_eq!(reply.unmetered_attempts, perhaps_billed.min(1));
}

#[rstest]
#[case::from_the_start(Answer::Hang)]
#[case::amid_the_text(Answer::stream([Piece::delta("a"), Piece::Hang]))]
#[tokio::test]
async fn silence_is_waited_out_and_tried_again(#[case] answer: Answer) {
    let server = ChatServer::start(vec![answer; 9]).await;
    let timeouts = CallTimeouts {
        idle: Duration::from_millis(200),
        ..quick()
    };
    let model =
        OpenAiCompatible::new(ModelEndpoint::parse(&server.base_url()).unwrap(), None, timeouts).unwrap();
    let error = model.answer(&request("hi"), &mut |_| {}).await.unwrap_err();
    assert_eq!(summary(&error), "Unavailable after 4: no data for 200ms");
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_named() {
    let gone = ChatServer::start([]).await.base_url();
    let error = client_at(&gone, None)
        .answer(&request("hi"), &mut |_| {})
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ModelError::Unavailable {
                source: AttemptError::NoConnection(_),
                unmetered_attempts: 0,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        format!("{gone}/v1 did not answer after 4 attempts")
    );
    assert!(error.hint().contains("litellm"));
}

#[tokio::test]
async fn text_of_a_broken_attempt_is_neither_doubled_nor_returned() {
    let server = ChatServer::start([
        Answer::stream([Piece::delta("first "), Piece::delta("half"), Piece::Cut]),
        Answer::text("first whole"),
    ])
    .await;
    let mut seen = String::new();
    let reply = client(&server, None)
        .answer(&request("hi"), &mut |text| seen.push_str(text))
        .await
        .unwrap();
    assert_eq!(reply.text, "first whole");
    assert_eq!(seen, "first half");
}

#[rstest]
#[case::the_stream_ends(vec![])]
#[case::the_stream_breaks(vec![Piece::Cut])]
#[case::the_stream_stays_open(vec![Piece::Bytes(b"data: [DONE]\n\n".to_vec()), Piece::Hang])]
#[tokio::test]
async fn a_finished_answer_counts_whatever_follows(#[case] rest: Vec<Piece>) {
    let end = json!({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]});
    let answer = Answer::stream([Piece::event(&end)].into_iter().chain(rest));
    let reply = ask([answer]).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.tokens, reply.cost), ("x", None, None));
}

#[test]
fn a_key_that_cannot_be_sent_is_refused_before_any_call() {
    let endpoint = ModelEndpoint::parse("http://127.0.0.1:1").unwrap();
    let error = OpenAiCompatible::new(
        endpoint,
        Some(Secret::new("sk-read-with-its-line-break\n")),
        quick(),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the key of the model endpoint contains an invalid character"
    );
}

#[rstest]
#[case("text/event-stream", [b": ", &[b'.'; 1000][..], b"\n"].concat())]
#[case("text/event-stream", b"data: and no end of the line".to_vec())]
#[case("application/json", b" ".to_vec())]
#[tokio::test]
async fn an_answer_without_end_is_refused(#[case] form: &str, #[case] filler: Vec<u8>) {
    let megabyte = Piece::Bytes(filler.repeat((1 << 20) / filler.len()));
    let answer = Answer::Exactly {
        status: 200,
        headers: vec![("content-type".to_owned(), form.to_owned())],
        pieces: vec![megabyte; 40],
    };
    assert_eq!(
        summary(&ask([answer]).await.unwrap_err()),
        "Refused 200: the answer is longer than 32 MiB"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_stream_reads_the_same_however_it_is_split(cuts in prop::collection::vec(1usize..1000, 0..12)) {
        let Answer::Exactly { headers, pieces, .. } = recorded("upstream-chat-completions-stream") else { panic!() };
        let [Piece::Bytes(body)] = &pieces[..] else { panic!() };
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut % body.len()).chain([0, body.len()]).collect();
        at.sort_unstable();
        let split = at.windows(2).map(|pair| Piece::Bytes(body[pair[0]..pair[1]].to_vec())).collect();
        let answer = Answer::Exactly { status: 200, headers, pieces: split };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reply = runtime.block_on(ask([answer])).unwrap();
        prop_assert_eq!(reply.text, "hello");
        prop_assert_eq!(reply.tokens, Some(Tokens { input: 1000, output: 200 }));
    }
}

#[tokio::test]
async fn a_conversation_is_sent_in_order() {
    let server = ChatServer::start([Answer::text("ok")]).await;
    let mut request = request("first");
    request
        .messages
        .extend([ModelMessage::assistant("second"), ModelMessage::user("third")]);
    client(&server, None).answer(&request, &mut |_| {}).await.unwrap();
    let said = &server.requests()[0].body["messages"];
    assert_eq!(said[1], json!({"role": "assistant", "content": "second"}));
    assert_eq!(server.requests()[0].last_words(), "third");
}
