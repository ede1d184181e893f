//! Attacks on the broker: on the credential that it adds, on what calls may have, and on the budget.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::attack::{proxy_credential, send_http, send_proxy};
use super::scenario::{result, shell};
use super::server::{Server, response};
use super::setup::AttackSetup;
use super::{AttackClass, AttackResult, Attacker, EscapeError, TIMEOUT, TRANSIT_TIME};
use crate::clock::Clock;
use crate::credential::CredentialSource;
use crate::gateway::audit::{AuditLimits, AuditLog};
use crate::gateway::broker::{Broker, BrokerHandle, BrokerService, CallExceptions, ModelUpstream};
use crate::gateway::meter::{Allowance, Meter, MeterNotice, MeterSetup, PriceList};
use crate::model::{GATEWAY, GATEWAY_KEY};
use crate::network::PolicyRule;
use crate::network::probe::{Probe, ProbeResult};
use crate::sandbox::SandboxSpec;
use crate::secret::Secret;
use crate::usage::{Price, Usd};

/// How long the service takes for a call, so that several are in progress at once.
const CALL_TIME: Duration = Duration::from_millis(100);
/// What a usual call uses, and what a tool of the service does.
pub(super) const CALL_TOKENS: u64 = 1040;
pub(super) const TOOL_TOKENS: u64 = 20_000;
/// The models of the service, which behave differently.
const MODELS: [&str; 7] = ["usual", "redirect", "echo", "silent", "cut", "tools", "tiered"];
/// Their price in dollars per million tokens.
const PRICE: f64 = 1.0;
/// The size of the audit log. Denied requests get less than that.
const AUDIT_BYTES: u64 = 128 << 10;

pub(super) const MESSAGES: &str = "/v1/messages";
pub(super) const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

const OWN_KEY: &str = "x-api-key: sk-own\r\n";

/// Calls with what makes a service act elsewhere: name, path, and fields beside those of a usual call.
const CALLS: [(&str, &str, &str); 13] = [
    (
        "the service loads no image",
        MESSAGES,
        r#"{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://denied.invalid/a"}}]}]}"#,
    ),
    (
        "the service loads no document",
        MESSAGES,
        r#"{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"url","url":"https://denied.invalid/a"}}]}]}"#,
    ),
    (
        "the service loads no image in a chat",
        CHAT,
        r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://denied.invalid/a"}}]}]}"#,
    ),
    (
        "the service loads no file",
        RESPONSES,
        r#"{"input":[{"role":"user","content":[{"type":"input_file","file_url":"https://denied.invalid/a"}]}],"max_output_tokens":9}"#,
    ),
    (
        "a call does not choose the address of the service",
        MESSAGES,
        r#"{"api_base":"https://denied.invalid"}"#,
    ),
    (
        "a call does not set parameters of a gateway",
        MESSAGES,
        r#"{"litellm_params":{"api_base":"https://denied.invalid"}}"#,
    ),
    (
        "a call does not choose a cloud",
        CHAT,
        r#"{"aws_bedrock_runtime_endpoint":"https://denied.invalid"}"#,
    ),
    (
        "a call does not choose a project",
        CHAT,
        r#"{"vertex_project":"x"}"#,
    ),
    (
        "a call does not choose where it is logged",
        MESSAGES,
        r#"{"langfuse_host":"https://denied.invalid"}"#,
    ),
    (
        "a call does not set its price",
        MESSAGES,
        r#"{"input_cost_per_token":0}"#,
    ),
    (
        "a call names no servers",
        MESSAGES,
        r#"{"mcp_servers":[{"type":"url","url":"https://denied.invalid","name":"x"}]}"#,
    ),
    (
        "a call adds no headers",
        MESSAGES,
        r#"{"extra_headers":{"x":"y"}}"#,
    ),
    (
        "a call names no tool that visits addresses",
        MESSAGES,
        r#"{"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]}"#,
    ),
];

/// Paths that are not for calls.
const PATHS: [(&str, &str); 4] = [
    ("files of the service are out of reach", "/v1/files"),
    ("a longer path is refused", "/v1/messages/batches"),
    ("a path with dots is refused", "/v1/messages/../files"),
    ("an encoded path is refused", "/v1/m%65ssages"),
];

/// A call that the service must not receive.
struct CallAttack {
    class: AttackClass,
    name: &'static str,
    /// What a received call must not contain. The empty text is in every call.
    forbidden: &'static str,
    request: String,
}

/// A model service of the attacks, and the broker that has its credential.
pub(super) struct BrokerTarget<'a> {
    setup: &'a AttackSetup,
    pub(super) service: Server,
    key: Secret,
    pub(super) meter: Meter,
    handle: BrokerHandle,
    audit: Arc<AuditLog>,
    dir: TempDir,
}

impl<'a> BrokerTarget<'a> {
    pub(super) async fn open(setup: &'a AttackSetup, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let elsewhere = format!("location: http://{}/\r\n", setup.server.address);
        let service = Server::start(CALL_TIME, move |request| answer(request, &elsewhere)).await?;
        let key = Secret::new(format!("sk-escapes-{:016x}", fastrand::u64(..)));
        let address = format!("http://{}", service.address);
        let source = CredentialSource::Fixed(key.clone());
        let upstream = ModelUpstream::new(GATEWAY_KEY, source, Some(&address)).map_err(io::Error::other)?;
        let price = Usd::from_dollars(PRICE).unwrap_or(Usd::ZERO);
        let price = Price {
            input_per_million: price,
            output_per_million: price,
        };
        let meter = Meter::open(MeterSetup {
            file: dir.path().join("spending.jsonl"),
            allowance: Allowance::default(),
            prices: PriceList::new(MODELS.map(|model| (model.to_owned(), price))),
            sink: Arc::new(Mutex::new(Vec::<MeterNotice>::new())),
            clock: clock.clone(),
        })
        .map_err(io::Error::other)?;
        let broker = Broker::new([BrokerService::Model(upstream)], Vec::new()).map_err(io::Error::other)?;
        let limits = AuditLimits {
            max_bytes: AUDIT_BYTES,
            ..AuditLimits::default()
        };
        let audit = AuditLog::open_with(&dir.path().join("network.jsonl"), clock, limits);
        Ok(Self {
            handle: broker.register(setup.phantom.clone(), meter.clone(), CallExceptions::default()),
            audit: Arc::new(audit.map_err(io::Error::other)?),
            setup,
            service,
            key,
            meter,
            dir,
        })
    }

    /// A sandbox whose gateway uses the broker.
    pub(super) fn spec(&self, spec: SandboxSpec) -> io::Result<SandboxSpec> {
        let rule = PolicyRule::parse(GATEWAY.sandbox_host).map_err(io::Error::other)?;
        let mut egress = spec.egress;
        egress.injection = Some(Arc::new(self.handle.clone()));
        egress.audit = self.audit.clone();
        Ok(SandboxSpec {
            network: spec.network.allowing([rule]),
            egress,
            ..spec
        })
    }

    /// The audit log of that gateway.
    pub(super) fn audit_file(&self) -> PathBuf {
        self.dir.path().join("network.jsonl")
    }

    pub(super) async fn attack(&self, attacker: &Attacker<'_>) -> Result<Vec<AttackResult>, EscapeError> {
        self.check_control(attacker).await?;
        let mut results = Vec::new();
        for attack in self.credential_attacks().into_iter().chain(self.call_attacks()) {
            results.push(self.call(attacker, &attack).await?);
        }
        results.push(self.send_elsewhere(attacker).await?);
        results.push(self.be_redirected(attacker).await?);
        results.push(self.ask_for_an_echo(attacker).await?);
        results.push(self.search(attacker).await?);
        results.extend(self.attack_budget(attacker).await?);
        // The attacks may have failed because the broker stopped working.
        self.check_control(attacker).await?;
        Ok(results)
    }

    /// The positive control: a usual call reaches the service, with the credential.
    pub(super) async fn check_control(&self, attacker: &Attacker<'_>) -> Result<(), EscapeError> {
        self.service.take_requests();
        let probe = self.usual_call(MESSAGES, &json!({}));
        let seen = attacker.run(&probe).await?;
        let received = self.service.take_requests();
        let is_real = |request: &String| request.contains(self.key.expose());
        if text_of(&seen).starts_with("HTTP/1.1 200") && received.iter().any(is_real) {
            Ok(())
        } else {
            Err(EscapeError::Control(format!("a call to a model: {seen}")))
        }
    }

    /// Makes a call that the service must not receive.
    async fn call(&self, attacker: &Attacker<'_>, attack: &CallAttack) -> Result<AttackResult, EscapeError> {
        let seen = attacker.run(&send_http(attack.request.as_str())).await?;
        tokio::time::sleep(TRANSIT_TIME).await;
        let received = self.service.take_requests();
        let forwarded = received.iter().any(|request| request.contains(attack.forbidden));
        Ok(result(attack.class, attack.name, !forwarded, seen.to_string()))
    }

    fn own_phantom(&self) -> String {
        format!("authorization: Bearer {}\r\n", self.setup.phantom.expose())
    }

    pub(super) fn usual_call(&self, path: &str, added: &Value) -> Probe {
        send_http(post(path, &self.own_phantom(), &body(added)))
    }

    fn credential_attacks(&self) -> Vec<CallAttack> {
        let phantom = self.setup.phantom.expose();
        let usual = body(&json!({}));
        let in_body = body(&json!({"metadata": {"user_id": phantom}}));
        let in_url = format!("{MESSAGES}?api_key={phantom}");
        let foreign = "x-api-key: ralph-phantom-of-another-run\r\n";
        let both = format!("{}{OWN_KEY}", self.own_phantom());
        let attack = |name, forbidden, request| CallAttack {
            class: AttackClass::Credentials,
            name,
            forbidden,
            request,
        };
        vec![
            attack("a call needs the phantom", "", post(MESSAGES, "", &usual)),
            attack(
                "another run's phantom is refused",
                "",
                post(MESSAGES, foreign, &usual),
            ),
            attack(
                "a key of the sandbox's own is refused",
                "",
                post(MESSAGES, OWN_KEY, &usual),
            ),
            attack(
                "a second credential is not forwarded",
                "sk-own",
                post(MESSAGES, &both, &usual),
            ),
            attack(
                "the phantom in a URL is not replaced",
                "",
                post(&in_url, "", &usual),
            ),
            attack(
                "the phantom in a body is not replaced",
                "",
                post(MESSAGES, "", &in_body),
            ),
        ]
    }

    fn call_attacks(&self) -> Vec<CallAttack> {
        let (own, usual) = (self.own_phantom(), body(&json!({})));
        let attack = |name, forbidden, request| CallAttack {
            class: AttackClass::ModelCalls,
            name,
            forbidden,
            request,
        };
        let with = |path: &str, added: &str| {
            let added = serde_json::from_str(added).unwrap_or_default();
            post(path, &own, &body(&added))
        };
        let header = format!("{own}x-original-url: /v1/files\r\n");
        let get = post(MESSAGES, &own, "").replacen("POST", "GET", 1);
        let mut attacks: Vec<CallAttack> = CALLS
            .iter()
            .map(|(name, path, added)| attack(*name, "", with(path, added)))
            .collect();
        attacks.extend(
            PATHS
                .iter()
                .map(|(name, path)| attack(*name, "", post(path, &own, &usual))),
        );
        attacks.push(attack("only known methods are forwarded", "", get));
        attacks.push(attack(
            "a header names no other path",
            "x-original-url",
            post(MESSAGES, &header, &usual),
        ));
        attacks
    }

    /// Shows the phantom to another host, which must not receive the credential.
    async fn send_elsewhere(&self, attacker: &Attacker<'_>) -> Result<AttackResult, EscapeError> {
        let phantom = self.setup.phantom.expose();
        let shown = format!("{}x-api-key: {phantom}\r\n", self.own_phantom());
        let headers = proxy_credential(phantom) + &shown;
        let host = self.setup.allowed_host();
        self.setup.server.take_requests();
        let seen = attacker
            .run(&send_proxy(&format!("GET http://{host}/"), &host, &headers))
            .await?;
        let received = self.setup.server.take_requests();
        let is_open =
            received.is_empty() || received.iter().any(|request| request.contains(self.key.expose()));
        Ok(result(
            AttackClass::Credentials,
            "the phantom is not replaced for another host",
            !is_open,
            seen.to_string(),
        ))
    }

    /// The service redirects to another host, which must not receive anything.
    async fn be_redirected(&self, attacker: &Attacker<'_>) -> Result<AttackResult, EscapeError> {
        self.setup.take_server_hit();
        let probe = self.usual_call(MESSAGES, &json!({"model": "redirect"}));
        let seen = attacker.run(&probe).await?;
        tokio::time::sleep(TRANSIT_TIME).await;
        let asked = !self.service.take_requests().is_empty();
        Ok(result(
            AttackClass::Credentials,
            "the credential does not follow a redirect",
            asked && !self.setup.take_server_hit(),
            seen.to_string(),
        ))
    }

    /// The service repeats in an error what it received.
    async fn ask_for_an_echo(&self, attacker: &Attacker<'_>) -> Result<AttackResult, EscapeError> {
        let seen = attacker
            .run(&self.usual_call(MESSAGES, &json!({"model": "echo"})))
            .await?;
        let text = text_of(&seen);
        let arrived = text.contains(ECHO_END);
        Ok(result(
            AttackClass::Credentials,
            "an error that repeats the credential is redacted",
            arrived && !text.contains(self.key.expose()),
            seen.to_string(),
        ))
    }

    /// Searches the sandbox for the credential. A file that looks like it shows that the search works.
    async fn search(&self, attacker: &Attacker<'_>) -> Result<AttackResult, EscapeError> {
        let line = "printf 'sk-%s-decoy' escapes > /tmp/escapes-decoy; \
            { env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; } 2>/dev/null | grep -aq 'sk-[e]scapes-' && echo process; \
            grep -rlsa 'sk-[e]scapes-' \"$HOME\" \"$PWD\" /tmp /var/tmp /run /etc 2>/dev/null; true";
        let found = shell(attacker.sandbox, line, TIMEOUT).await?.stdout.text();
        let audited = std::fs::read_to_string(self.audit_file()).map_err(EscapeError::Setup)?;
        let in_audit = audited.contains(self.key.expose());
        Ok(result(
            AttackClass::Credentials,
            "the credential is not in the sandbox and not in the audit log",
            found.trim() == "/tmp/escapes-decoy" && !in_audit,
            found.trim().replace('\n', ", "),
        ))
    }
}

/// The end of a response that repeats a request.
const ECHO_END: &str = "the end of the echo";

/// What the service answers. The model in the request decides.
fn answer(request: &str, elsewhere: &str) -> String {
    let names = |model: &str| request.contains(&format!("\"model\":\"{model}\""));
    let is_json = "content-type: application/json\r\n";
    let used = |input: u64| {
        let usage = json!({"input_tokens": input, "output_tokens": 1000,
            "prompt_tokens": input, "completion_tokens": 1000});
        response("200 OK", is_json, &json!({ "usage": usage }).to_string())
    };
    if names("redirect") {
        response("307 Temporary Redirect", elsewhere, "")
    } else if names("echo") {
        let head = request.split("\r\n\r\n").next().unwrap_or_default();
        let secrets = head.lines().filter(|line| line.contains("sk-escapes"));
        let text = format!("{} {ECHO_END}", secrets.collect::<Vec<_>>().join(" "));
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": text}});
        response("400 Bad Request", is_json, &error.to_string())
    } else if names("silent") {
        response("200 OK", is_json, "{}")
    } else if names("cut") {
        let start = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n";
        response("200 OK", "content-type: text/event-stream\r\n", start)
    } else if names("tools") {
        used(TOOL_TOKENS - 1000)
    } else {
        used(CALL_TOKENS - 1000)
    }
}

/// A small call with these fields added or replaced.
fn body(added: &Value) -> String {
    let words = json!([{"role": "user", "content": "hi"}]);
    let mut call = json!({"model": "usual", "max_tokens": 1000});
    let key = if added.get("input").is_some() {
        "input"
    } else {
        "messages"
    };
    call[key] = words;
    for (field, value) in added.as_object().into_iter().flatten() {
        call[field] = value.clone();
    }
    call.to_string()
}

fn post(path: &str, headers: &str, body: &str) -> String {
    let (host, length) = (GATEWAY.sandbox_host, body.len());
    format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\n{headers}anthropic-version: 2023-06-01\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn text_of(seen: &ProbeResult) -> String {
    match seen {
        ProbeResult::Received(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => other.to_string(),
    }
}
