//! Login by a link, sessions and logout.

use serde_json::json;

use crate::service::{Answer, Service, done, request};

fn login_secret(service: &Service, name: &str) -> String {
    let ended = service.place.run(&["api-token", "login", "--name", name]);
    ended.expect(0, &["It works once"]);
    ended.stdout.trim().to_owned()
}

fn post_login(service: &Service, secret: &str) -> Answer {
    let headers = format!("Host: {0}\r\nOrigin: http://{0}\r\n", service.address);
    service.raw(&request(
        "POST",
        "/api/login",
        &headers,
        Some(&json!({"secret": secret})),
    ))
}

/// Logs a browser in and returns its cookie.
pub fn log_in(service: &Service, name: &str) -> String {
    let secret = login_secret(service, name);
    let answer = post_login(service, &secret);
    assert_eq!(answer.expect(200)["name"], name);
    assert!(answer.headers.contains("httponly; samesite=strict"), "{answer:?}");
    answer.cookie.unwrap()
}

fn ask(service: &Service, cookie: &str, method: &str, path: &str) -> Answer {
    let headers = format!(
        "Host: {0}\r\nOrigin: http://{0}\r\nCookie: other=1; {cookie}\r\n",
        service.address
    );
    service.raw(&request(method, path, &headers, Some(&json!({}))))
}

#[test]
fn a_login_link_works_once_and_only_by_post() {
    let service = Service::start(done());
    let secret = login_secret(&service, "phone");
    let headers = format!("Host: {}\r\n", service.address);
    // A preview of the link spends nothing.
    let preview = service.raw(&request(
        "GET",
        &format!("/api/login?secret={secret}"),
        &headers,
        None,
    ));
    preview.expect_problem(405, "");
    let answer = post_login(&service, &secret);
    assert_eq!(answer.expect(200)["scope"], "admin");
    let cookie = answer.cookie.clone().unwrap();
    assert_eq!(
        ask(&service, &cookie, "GET", "/api/session").expect(200)["name"],
        "phone"
    );
    post_login(&service, &secret).expect_problem(401, "unknown, expired or used");
    let again = log_in(&service, "phone");
    ask(&service, &cookie, "POST", "/api/logout").expect(204);
    for ended in [cookie, again] {
        ask(&service, &ended, "GET", "/api/session").expect_problem(401, "");
    }
}

#[test]
fn logins_are_limited() {
    let service = Service::start(done());
    let statuses: Vec<u16> = (0..10)
        .map(|_| post_login(&service, "ralph_guess").status)
        .collect();
    assert_eq!(statuses[..5], [401; 5]);
    assert!(statuses[6..].contains(&429), "{statuses:?}");
}

#[test]
fn a_session_is_no_token_and_a_token_no_session() {
    let service = Service::start(done());
    let cookie = log_in(&service, "phone");
    let session = cookie.strip_prefix("ralph_session=").unwrap();
    service
        .ask_as(session, "GET", "/api/session", None)
        .expect_problem(401, "");
    let forged = format!("ralph_session={}", service.token);
    ask(&service, &forged, "GET", "/api/session").expect_problem(401, "");
}
