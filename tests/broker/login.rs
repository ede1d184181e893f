//! A login that is about to end, and everybody who uses it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use ralph::clock::{self, Clock};
use ralph::credential::{
    Credential, CredentialLocation, Login, LoginError, RefreshToken, TokenServer, Vault,
};
use ralph::secret::{Redactor, Secret};
use serde_json::Value;

use crate::support::model_service::{ACCESS, Answer, KEY, ModelService, OnRefresh, REFRESH, USED};
use crate::support::ralph::{Live, Place as Home, eventually};

/// A clock that is so far ahead.
struct Ahead(SignedDuration);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.0
    }
}

fn login(expires_in: SignedDuration) -> Credential {
    Credential {
        token: Secret::new(ACCESS),
        expires: Some(Timestamp::now() + expires_in),
        refresh: Some(RefreshToken {
            token: Secret::new(REFRESH),
            scopes: vec!["user:inference".to_owned()],
        }),
    }
}

async fn keep(vault: &Vault, expires_in: SignedDuration) {
    vault
        .store(
            ralph::model::ANTHROPIC_LOGIN,
            &login(expires_in),
            CredentialLocation::File,
        )
        .await
        .unwrap();
}

fn user(vault: &Vault, service: &ModelService, clock: Arc<dyn Clock>) -> Login {
    let server = TokenServer {
        url: format!("{}/v1/oauth/token", service.base_url()).parse().unwrap(),
        http: reqwest::Client::builder().no_proxy().build().unwrap(),
    };
    Login::new(ralph::model::ANTHROPIC_LOGIN, vault.clone(), server, clock)
}

#[tokio::test]
async fn a_login_is_renewed_before_it_ends_and_not_sooner() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let home = tempfile::tempdir().unwrap();
    let vault = Vault::in_files(home.path());
    keep(&vault, SignedDuration::from_mins(20)).await;
    let now = user(&vault, &service, clock::system());
    assert_eq!(now.current().await.unwrap().expose(), ACCESS);
    assert_eq!(service.renewals(), 0);
    let later = user(&vault, &service, Arc::new(Ahead(SignedDuration::from_mins(16))));
    assert_eq!(
        later.current().await.unwrap().expose(),
        "sk-ant-oat01-CANARY-ACCESS-1"
    );
    let (kept, _) = vault.load(ralph::model::ANTHROPIC_LOGIN).await.unwrap().unwrap();
    assert_eq!(
        kept.refresh.unwrap().token.expose(),
        "sk-ant-ort01-CANARY-REFRESH-1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_users_renew_a_login_once() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    service.on_refresh(OnRefresh::Slowly);
    let home = tempfile::tempdir().unwrap();
    let vault = Vault::in_files(home.path());
    keep(&vault, SignedDuration::from_mins(1)).await;
    let users: Vec<Login> = (0..8).map(|_| user(&vault, &service, clock::system())).collect();
    let tokens = join_all(users.iter().map(Login::current)).await;
    for token in tokens {
        assert_eq!(token.unwrap().expose(), "sk-ant-oat01-CANARY-ACCESS-1");
    }
    assert_eq!(service.renewals(), 1);
}

/// Two runs of two processes with one login: whichever of them renews it, neither shows the new tokens.
#[tokio::test]
async fn renewed_tokens_are_redacted() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let home = tempfile::tempdir().unwrap();
    let vault = Vault::in_files(home.path());
    keep(&vault, SignedDuration::from_mins(1)).await;
    for _ in 0..2 {
        let redactor = Redactor::default();
        let user = user(&vault, &service, clock::system());
        user.register_secrets(&redactor);
        user.current().await.unwrap();
        let shown = redactor.redact("sk-ant-oat01-CANARY-ACCESS-1 sk-ant-ort01-CANARY-REFRESH-1");
        assert_eq!(shown, "[redacted] [redacted]");
    }
    assert_eq!(service.renewals(), 1);
}

#[tokio::test]
async fn an_outage_is_bridged_while_the_token_lasts() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let home = tempfile::tempdir().unwrap();
    let vault = Vault::in_files(home.path());
    let server = TokenServer {
        url: "http://127.0.0.1:1/v1/oauth/token".parse().unwrap(),
        http: reqwest::Client::builder().no_proxy().build().unwrap(),
    };
    let user = |server: &TokenServer| {
        Login::new(
            ralph::model::ANTHROPIC_LOGIN,
            vault.clone(),
            server.clone(),
            clock::system(),
        )
    };
    keep(&vault, SignedDuration::from_mins(2)).await;
    assert_eq!(user(&server).current().await.unwrap().expose(), ACCESS);
    keep(&vault, SignedDuration::from_secs(-1)).await;
    let error = user(&server).current().await.unwrap_err();
    assert!(matches!(error, LoginError::Unavailable { .. }), "{error}");
    drop(service);
}

/// A refresh token that the server does not know is refused each time. No crash is blamed, and the access token serves
/// while it lasts.
#[tokio::test]
async fn a_refused_login_is_not_taken_for_an_interrupted_one() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let home = tempfile::tempdir().unwrap();
    let vault = Vault::in_files(home.path());
    for (expires_in, lasts) in [
        (SignedDuration::from_mins(2), true),
        (SignedDuration::from_secs(-1), false),
    ] {
        let revoked = Credential {
            refresh: Some(RefreshToken {
                token: Secret::new("sk-ant-ort01-CANARY-REVOKED"),
                scopes: Vec::new(),
            }),
            ..login(expires_in)
        };
        vault
            .store(ralph::model::ANTHROPIC_LOGIN, &revoked, CredentialLocation::File)
            .await
            .unwrap();
        for _ in 0..2 {
            match user(&vault, &service, clock::system()).current().await {
                Ok(token) => assert!(lasts && token.expose() == ACCESS),
                Err(error) => assert!(!lasts && matches!(error, LoginError::Refused { .. }), "{error}"),
            }
        }
    }
}

/// The caller that asked for the token may be gone when the login is renewed; the new tokens must not be lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_continues_when_its_caller_is_cancelled() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    service.on_refresh(OnRefresh::Slowly);
    let home = tempfile::tempdir().unwrap();
    let vault = Vault::in_files(home.path());
    keep(&vault, SignedDuration::from_secs(-1)).await;
    let login = user(&vault, &service, clock::system());
    let asked = tokio::spawn({
        let login = login.clone();
        async move { login.current().await }
    });
    eventually("the login is being renewed", || service.renewals() == 1);
    asked.abort();
    let token = login.current().await.unwrap();
    assert_eq!(token.expose(), "sk-ant-oat01-CANARY-ACCESS-1");
    assert_eq!(service.renewals(), 1);
}

/// Two processes of the real binary, each serving a run, with one login that is about to end.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_renew_a_login_once() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    service.on_refresh(OnRefresh::Slowly);
    let home = Home::new();
    let vault = Vault::in_files(home.home().join("credentials"));
    keep(&vault, SignedDuration::from_mins(1)).await;
    let gateways = [Gateway::start(&home, &service), Gateway::start(&home, &service)];
    let calls = gateways
        .iter()
        .flat_map(|gateway| [gateway.call(), gateway.call()]);
    for status in join_all(calls).await {
        assert_eq!(status, 200);
    }
    assert_eq!(service.renewals(), 1);
    for request in service.requests() {
        assert_eq!(
            request.headers["authorization"],
            "Bearer sk-ant-oat01-CANARY-ACCESS-1"
        );
    }
    // Neither prints a credential.
    for gateway in gateways {
        gateway.live.signal("INT");
        let ended = gateway.live.wait();
        assert!(!format!("{ended:?}").contains("CANARY"), "{ended:?}");
    }
}

/// A process that died before the token server received of it leaves its mark, and the login as it was.
#[tokio::test]
async fn a_crash_before_a_refresh_costs_nothing() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    let home = tempfile::tempdir().unwrap();
    let vault = Vault::in_files(home.path());
    keep(&vault, SignedDuration::from_secs(-1)).await;
    let mark = home.path().join("anthropic-oauth.refreshing");
    std::fs::write(&mark, "").unwrap();
    let token = user(&vault, &service, clock::system()).current().await.unwrap();
    assert_eq!(
        (token.expose(), mark.exists()),
        ("sk-ant-oat01-CANARY-ACCESS-1", false)
    );
}

/// A process that is killed after the token server renewed the login, and before it received so, has used it up. The lock
/// is free again, and the error for its owner says what happened.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_during_a_renewal_is_distinguished_from_a_refused_login() {
    let service = ModelService::answering(Answer::Words(USED)).await;
    service.on_refresh(OnRefresh::RenewAndHang);
    let home = Home::new();
    let vault = Vault::in_files(home.home().join("credentials"));
    keep(&vault, SignedDuration::from_secs(-1)).await;
    let gateway = Gateway::start(&home, &service);
    let call = tokio::spawn(gateway.call());
    eventually("the login is being renewed", || service.renewals() == 1);
    gateway.live.signal("KILL");
    gateway.live.wait();
    call.abort();

    service.on_refresh(OnRefresh::Answer);
    let next = user(&vault, &service, clock::system());
    let error = tokio::time::timeout(Duration::from_secs(20), next.current())
        .await
        .expect("the lock is held");
    let error = error.unwrap_err();
    assert!(matches!(error, LoginError::UsedUp(_)), "{error}");
    assert!(error.hint().unwrap().contains("ralph token store"));

    // A new login is a new beginning.
    let renewed = Credential {
        token: Secret::new("sk-ant-oat01-CANARY-ACCESS-1"),
        ..login(SignedDuration::from_hours(1))
    };
    vault
        .store(ralph::model::ANTHROPIC_LOGIN, &renewed, CredentialLocation::File)
        .await
        .unwrap();
    assert!(next.current().await.is_ok());
    let left = std::fs::read_dir(home.home().join("credentials")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!format!("{left:?}").contains("refreshing"), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_amid_an_answer_leaves_nothing_open_and_the_next_one_serves() {
    let mut calls = 0;
    let service = ModelService::scripted(KEY, move |_| {
        calls += 1;
        match calls {
            1 => Answer::Slow(USED, 1000, Duration::from_millis(20)),
            _ => Answer::Words(USED),
        }
    });
    let service = service.await;
    let home = Home::new();
    let vault = Vault::in_files(home.home().join("credentials"));
    keep(&vault, SignedDuration::from_hours(1)).await;
    let gateway = Gateway::start(&home, &service);
    let mut answer = gateway.request().send().await.unwrap();
    assert!(answer.chunk().await.unwrap().is_some());
    let address = answer.remote_addr().unwrap();
    gateway.live.signal("KILL");
    gateway.live.wait();
    while let Ok(piece) = answer.chunk().await {
        assert!(piece.is_some(), "the answer came to its end");
    }
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert_eq!(service.requests().len(), 1);
    assert_eq!(Gateway::start(&home, &service).call().await, 200);
}

/// `ralph gateway run`.
struct Gateway {
    live: Live,
    ready: Value,
}

impl Gateway {
    fn start(home: &Home, service: &ModelService) -> Self {
        use std::io::{BufRead, BufReader};
        let mut command = home.ralph(&[
            "gateway",
            "run",
            "--agent",
            "claude",
            "--auth",
            "oauth",
            "--set",
            "budget.max_tokens_total=1000000",
            "--base-url",
        ]);
        command.arg(service.base_url());
        command.env(
            "RALPH_TOKEN_SERVER",
            format!("{}/v1/oauth/token", service.base_url()),
        );
        let (mut stdout, theirs) = std::io::pipe().unwrap();
        let live = Live::start_with(&mut command, theirs);
        drop(command);
        let mut said = String::new();
        BufReader::new(&mut stdout).read_line(&mut said).unwrap();
        let ready = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        Self { live, ready }
    }

    /// A call, as `claude` with a login makes it.
    fn request(&self) -> reqwest::RequestBuilder {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        http.post(format!(
            "{}/v1/messages?beta=true",
            self.ready["base_url"].as_str().unwrap()
        ))
        .bearer_auth(self.ready["phantom"].as_str().unwrap())
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "claude-code-20250219,oauth-2025-04-20")
        .json(&crate::world::body("", "m", true))
    }

    /// Makes one call; returns its status.
    fn call(&self) -> impl Future<Output = u16> + Send + use<> {
        let call = self.request();
        async move { call.send().await.map_or(0, |response| response.status().as_u16()) }
    }
}
