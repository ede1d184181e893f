//! Apps: JWTs, installations and their tokens.

use std::io::Write;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};

use super::Desk;
use crate::need;
use crate::support::fake_github::AppKey;

/// A JWT of an App that was issued and expires so many seconds from now.
fn jwt(app: &AppKey, issued: i64, expires: i64) -> String {
    let now = Timestamp::now().as_second();
    let claims = json!({ "iat": now + issued, "exp": now + expires, "iss": app.id.to_string() });
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({ "alg": "RS256", "typ": "JWT" });
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let signature = BASE64_URL_SAFE_NO_PAD.encode(sign(&app.private_key, &signed));
    format!("{signed}.{signature}")
}

fn sign(key: &str, text: &str) -> Vec<u8> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(key.as_bytes()).unwrap();
    let mut child = Command::new("openssl")
        .args(["dgst", "-sha256", "-sign"])
        .arg(file.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

fn add_app(desk: &Desk) -> AppKey {
    let permissions = ["contents:write", "pull_requests:write", "metadata:read"];
    desk.github.add_app("ralph", &permissions, &["acme/widget"])
}

#[tokio::test]
async fn an_app_gets_tokens_that_expire() {
    let desk = need!(Desk::validated());
    let app = add_app(&desk);
    let desk = desk.with_token(&jwt(&app, -60, 540));
    let known = desk.read("/app").await;
    assert_eq!(known["slug"], "ralph");
    let found = desk.read("WIDGET/installation").await;
    assert_eq!(found["id"], app.installation);
    desk.read("/app/installations").await;
    let path = format!("/app/installations/{}/access_tokens", app.installation);
    let too_much = json!({ "permissions": { "issues": "write" } });
    desk.expect(422, "POST", &path, too_much).await;
    let wanted = json!({ "repositories": ["widget"], "permissions": { "contents": "write", "pull_requests": "write" } });
    let token = desk.expect(201, "POST", &path, wanted).await;
    let expires: Timestamp = token["expires_at"].as_str().unwrap().parse().unwrap();
    let left = expires.duration_since(Timestamp::now()).as_secs();
    assert!((3500..=3600).contains(&left), "{left}");

    let refused = desk.get("WIDGET").await;
    assert_eq!(refused.status, 404, "a JWT is for the App's own operations");
    let desk = desk.with_token(token["token"].as_str().unwrap());
    desk.clone_and_commit("topic", "a.txt");
    assert!(desk.git(&["push", "origin", "topic"]).0);
    let pull = json!({ "title": "New", "head": "topic", "base": "main" });
    let pull = desk.expect(201, "POST", "WIDGET/pulls", pull).await;
    assert_eq!(
        (&pull["user"]["login"], &pull["user"]["type"]),
        (&json!("ralph[bot]"), &json!("Bot"))
    );
    let refused = desk.send("POST", "WIDGET/labels", json!({ "name": "a" })).await;
    assert_eq!(refused.said(), "403 \"Resource not accessible by integration\" ");
    assert_eq!(desk.get("/user").await.status, 403);
    let repos = desk.read("/installation/repositories").await;
    assert_eq!(repos["repositories"][0]["full_name"], "acme/widget");

    desk.github.expire_installation_tokens();
    assert_eq!(desk.get("WIDGET").await.status, 401);
    let (pushed, said) = desk.git(&["push", "origin", "topic:other"]);
    assert!(!pushed && said.contains("could not read Username"), "{said}");
    assert!(
        desk.github.violations().is_empty(),
        "{:?}",
        desk.github.violations()
    );
}

#[rstest]
#[case::issued_in_the_future(60, 540, 0, "'Issued at' claim")]
#[case::valid_for_too_long(-60, 660, 0, "is too far in the future")]
#[case::expired(-600, -1, 0, "must be a numeric value")]
#[case::by_a_clock_that_is_ahead(0, 540, -30, "'Issued at' claim")]
#[tokio::test]
async fn a_jwt_with_wrong_times_is_refused(
    #[case] issued: i64,
    #[case] expires: i64,
    #[case] offset: i64,
    #[case] reason: &str,
) {
    let desk = Desk::new();
    let app = add_app(&desk);
    desk.github.set_clock_offset(SignedDuration::from_secs(offset));
    let desk = desk.with_token(&jwt(&app, issued, expires));
    let refused = desk.get("/app").await;
    assert!(
        refused.status == 401 && refused.said().contains(reason),
        "{}",
        refused.said()
    );
}

#[tokio::test]
async fn a_jwt_with_another_key_or_an_old_installation_is_refused() {
    let desk = Desk::new();
    let (app, other) = (add_app(&desk), add_app(&desk));
    let forged = AppKey {
        private_key: other.private_key,
        ..app.clone()
    };
    let desk = desk.with_token(&jwt(&forged, -60, 540));
    assert_eq!(desk.get("/app").await.status, 401);
    let desk = desk.with_token(&jwt(&app, -60, 540));
    let new = desk.github.reinstall(&app);
    let tokens = |id: u64| format!("/app/installations/{id}/access_tokens");
    assert_eq!(
        desk.send("POST", &tokens(app.installation), Value::Null)
            .await
            .status,
        404
    );
    assert_eq!(desk.send("POST", &tokens(new), Value::Null).await.status, 201);
}
