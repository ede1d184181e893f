//! Where runs are watched: on this host, or on another one by its service.
//!
//! Both answer the operations of the API, so that the view shows and does the same for either.

use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use reqwest::Url;
use serde_json::Value;

use crate::api::{Api, ApiSettings};
use crate::assembly::DashboardMode;
use crate::secret::Secret;
use crate::text::{error_chain, visible};

use super::super::submit::open_store;
use super::super::{CliError, Context, ErrorTopic};

/// The longest answer, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024 * 1024;

/// How long a service may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The environment variable with the token for a service.
pub(super) const TOKEN_VARIABLE: &str = "RALPH_API_TOKEN";

/// Answers the operations of the API.
#[async_trait]
pub(super) trait RunSource: Send + Sync {
    /// The status and the body of the answer. Fails if there is no answer.
    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Vec<u8>), CliError>;

    /// What is watched, for people.
    fn name(&self) -> &str;
}

/// The answer of a source as JSON, in which nothing can command a terminal. A refusal is an error.
pub(super) async fn ask(
    source: &dyn RunSource,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, CliError> {
    let (status, bytes) = source.answer(method, path, body).await?;
    let parsed = serde_json::from_slice(&bytes).map(printable);
    if status.is_success() {
        return parsed.map_err(|error| {
            let name = source.name();
            CliError::runtime(format!(
                "{name} answered `{path}` with something that is not JSON: {error}"
            ))
            .with_topic(ErrorTopic::Service)
            .with_hint("check that the address is that of `ralph serve` or `ralph dashboard`")
        });
    }
    Err(refusal(source.name(), status, &parsed.unwrap_or_default()))
}

/// Why a request was refused, as the answer says it.
fn refusal(name: &str, status: StatusCode, problem: &Value) -> CliError {
    let text = |key: &str| problem[key].as_str().map(str::to_owned);
    let Some(detail) = text("detail") else {
        return CliError::runtime(format!("{name} answered with status {status}"))
            .with_topic(ErrorTopic::Service)
            .with_hint("check that the address is that of `ralph serve` or `ralph dashboard`");
    };
    if status == StatusCode::UNAUTHORIZED {
        let message = format!("{name} refused the token in {TOKEN_VARIABLE}: {detail}");
        return CliError::usage(message).with_topic(ErrorTopic::Service).with_hint(format!(
            "`ralph api-token create NAME --scope steer` on its host prints a token; set {TOKEN_VARIABLE} to it"
        ));
    }
    let error = match status {
        StatusCode::NOT_FOUND => CliError::not_found(detail),
        status if status.is_client_error() => CliError::usage(detail),
        _ => CliError::runtime(detail),
    };
    // `type` is the link to the section of the documentation, on the host that answered.
    let is_named = |topic: &&ErrorTopic| {
        text("type").is_some_and(|link| link.ends_with(&format!("#{}", topic.anchor())))
    };
    let topic = ErrorTopic::ALL.iter().find(is_named);
    let error = error.with_topic(topic.copied().unwrap_or(ErrorTopic::Service));
    match text("hint") {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The value with every character that a terminal would obey written out, and tabs as spaces.
fn printable(value: Value) -> Value {
    let shown = |text: &str| visible(text).replace('\t', "    ");
    match value {
        Value::String(text) => Value::String(shown(&text)),
        Value::Array(values) => Value::Array(values.into_iter().map(printable).collect()),
        Value::Object(fields) => {
            let fields = fields
                .into_iter()
                .map(|(key, value)| (shown(&key), printable(value)));
            Value::Object(fields.collect())
        }
        other => other,
    }
}

/// The runs of this host, read from their directories by the operations of the API in this process.
pub(super) struct LocalRuns(TowerToHyperService<axum::Router>);

impl LocalRuns {
    pub(super) async fn open(context: &Context) -> Result<Self, CliError> {
        let surroundings = context.surroundings();
        let settings = ApiSettings {
            // As `ralph note`, which asks for no mode.
            mode: DashboardMode::Guided,
            ..ApiSettings::default()
        };
        let api = Api::new(surroundings.clone(), open_store(context).await?, settings)?;
        Ok(Self(TowerToHyperService::new(
            api.local_router(&surroundings.user()),
        )))
    }
}

#[async_trait]
impl RunSource for LocalRuns {
    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Vec<u8>), CliError> {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = Request::builder().method(method).uri(path).body(body);
        let failed = |error: &dyn std::fmt::Display| {
            CliError::runtime(format!("cannot read the runs: {error}")).with_topic(ErrorTopic::Service)
        };
        let request = request.map_err(|error| failed(&error))?;
        let response = self.0.call(request).await.map_err(|error| failed(&error))?;
        let status = response.status();
        let bytes = to_bytes(response.into_body(), LONGEST_ANSWER).await;
        Ok((status, bytes.map_err(|error| failed(&error))?.to_vec()))
    }

    fn name(&self) -> &'static str {
        "this host"
    }
}

/// The runs of a service.
pub(super) struct RemoteRuns {
    http: reqwest::Client,
    /// Without a slash at its end.
    base: String,
}

impl RemoteRuns {
    /// The service at this address. Sends nothing.
    pub(super) fn new(url: &str, token: Option<Secret>) -> Result<Self, CliError> {
        let base = service_address(url)?;
        let token = token.filter(|token| !token.expose().is_empty()).ok_or_else(|| {
            CliError::usage(format!("{TOKEN_VARIABLE} is not set, and {base} needs a token")).with_topic(ErrorTopic::Service).with_hint(format!(
                "`ralph api-token create NAME --scope steer` on its host prints one; set {TOKEN_VARIABLE} to it"
            ))
        })?;
        let token = Secret::new(format!("Bearer {}", token.expose()));
        let mut value = HeaderValue::from_str(token.expose()).map_err(|_| {
            CliError::usage(format!(
                "the token in {TOKEN_VARIABLE} has characters that no token has"
            ))
            .with_topic(ErrorTopic::Service)
        })?;
        value.set_sensitive(true);
        let http = reqwest::Client::builder()
            .timeout(ANSWER_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .default_headers([(header::AUTHORIZATION, value)].into_iter().collect())
            .build()
            .map_err(|error| {
                CliError::runtime(format!("cannot make an HTTP client: {}", error_chain(&error)))
                    .with_topic(ErrorTopic::Service)
            })?;
        Ok(Self { http, base })
    }
}

/// The address of a service, without a slash at its end.
fn service_address(url: &str) -> Result<String, CliError> {
    let refuse = |reason: &str| {
        // What follows is not shown: a login link ends in a secret.
        let shown = url.split(['?', '#']).next().unwrap_or_default();
        Err(
            CliError::usage(format!("`{shown}` is not the address of a service: {reason}"))
                .with_topic(ErrorTopic::Service)
                .with_hint("an address is such as `http://127.0.0.1:8000`"),
        )
    };
    let parsed = match Url::parse(url) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error.to_string()),
    };
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return refuse("it must begin with `http://` or `https://`");
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return refuse("it has no query; a login link is for a browser");
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return refuse("it has no user and no password");
    }
    Ok(parsed.as_str().trim_end_matches('/').to_owned())
}

#[async_trait]
impl RunSource for RemoteRuns {
    async fn answer(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Vec<u8>), CliError> {
        let lost = |error: reqwest::Error| {
            let cause = error_chain(&error.without_url());
            CliError::runtime(format!("cannot reach {}: {cause}", self.base)).with_topic(ErrorTopic::Service).with_hint(
                "check that `ralph serve` or `ralph dashboard` runs there, and that this host can reach it",
            )
        };
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.base));
        if method != Method::GET {
            request = request.json(body.unwrap_or(&Value::Object(serde_json::Map::new())));
        }
        let mut response = request.send().await.map_err(lost)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            if bytes.len() + chunk.len() > LONGEST_ANSWER {
                return Err(
                    CliError::runtime(format!("the answer of {} is too long", self.base))
                        .with_topic(ErrorTopic::Service),
                );
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((response.status(), bytes))
    }

    fn name(&self) -> &str {
        &self.base
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("http://127.0.0.1:8000", "http://127.0.0.1:8000")]
    #[case("https://ralph.example/", "https://ralph.example")]
    #[case("https://ralph.example/below/", "https://ralph.example/below")]
    fn an_address_has_no_slash_at_its_end(#[case] given: &str, #[case] used: &str) {
        assert_eq!(service_address(given).unwrap(), used);
    }

    #[rstest]
    #[case::no_scheme("127.0.0.1:8000")]
    #[case::socket("unix:ralph.sock")]
    #[case::login_link("http://127.0.0.1:8000/login?secret=ralph_s3cret")]
    #[case::password("http://user:s3cret@host")]
    #[case::nothing("")]
    fn other_addresses_are_refused_without_their_secrets(#[case] given: &str) {
        let error = service_address(given).unwrap_err();
        assert!(error.hint().unwrap().contains("http://127.0.0.1:8000"));
        assert!(
            !given.contains("secret=") || !error.to_string().contains("s3cret"),
            "{error}"
        );
    }

    #[test]
    fn nothing_in_an_answer_can_command_a_terminal() {
        let hostile = json!({"a\x1b[2J": ["\x1b]0;title\x07", {"b": "\u{202e}\tc\nd"}], "n": 1});
        let shown = json!({"a\\u001b[2J": ["\\u001b]0;title\\u0007", {"b": "\\u202e    c\nd"}], "n": 1});
        assert_eq!(printable(hostile), shown);
    }

    #[test]
    fn a_refusal_keeps_its_reason_and_its_hint() {
        let mut problem = json!({"detail": "run `r1` is not live", "hint": "resume it"});
        let error = refusal("here", StatusCode::UNPROCESSABLE_ENTITY, &problem);
        assert_eq!(
            (error.to_string().as_str(), error.hint()),
            ("run `r1` is not live", Some("resume it"))
        );
        assert_eq!(error.topic(), ErrorTopic::Service);
        problem["type"] = json!("https://example.com/v9/docs/troubleshooting.md#run");
        let error = refusal("here", StatusCode::UNPROCESSABLE_ENTITY, &problem);
        assert_eq!(error.topic(), ErrorTopic::Run);
        let error = refusal("http://host", StatusCode::BAD_GATEWAY, &Value::Null);
        assert_eq!(
            error.to_string(),
            "http://host answered with status 502 Bad Gateway"
        );
        let error = refusal(
            "http://host",
            StatusCode::UNAUTHORIZED,
            &json!({"detail": "it expired"}),
        );
        assert!(
            error
                .to_string()
                .contains("refused the token in RALPH_API_TOKEN: it expired")
        );
    }
}
