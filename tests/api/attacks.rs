//! Attacks on the API from a web page, from another host and from inside a run. Every one is refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use crate::service::{Service, create_token, done, request, user_file};

/// A service with a finished run, and a login session of a browser.
struct Target {
    service: Service,
    cookie: String,
}

impl Target {
    fn new() -> Self {
        let service = Service::start(done());
        let cookie = crate::login::log_in(&service, "browser");
        Self { service, cookie }
    }

    /// Sends a request in which these names are replaced: HOST, TOKEN, COOKIE, RUN.
    fn send(&self, text: &str) -> crate::service::Answer {
        let text = text
            .replace("HOST", &self.service.address)
            .replace("TOKEN", &self.service.token)
            .replace("COOKIE", &self.cookie)
            .replace("RUN", &self.service.place.run_id());
        self.service.raw(&format!("{text}\r\nConnection: close\r\n\r\n"))
    }
}

const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";

#[rstest]
#[case::rebinding("GET /api/runs HTTP/1.1\r\nHost: evil.example\r\nCookie: COOKIE", 403)]
#[case::rebinding_with_a_port("GET /api/runs HTTP/1.1\r\nHost: evil.example:8000\r\nCookie: COOKIE", 403)]
#[case::name_that_begins_like_ours(
    "GET /api/runs HTTP/1.1\r\nHost: localhost.evil.example\r\nCookie: COOKIE",
    403
)]
#[case::another_address("GET /api/runs HTTP/1.1\r\nHost: 10.0.0.1\r\nCookie: COOKIE", 403)]
#[case::two_hosts(
    "GET /api/runs HTTP/1.1\r\nHost: HOST\r\nHost: evil.example\r\nCookie: COOKIE",
    400
)]
#[case::host_in_the_target(
    "GET http://evil.example/api/runs HTTP/1.1\r\nHost: HOST\r\nCookie: COOKIE",
    403
)]
#[case::forwarded_host(
    "GET /api/runs HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: HOST\r\nCookie: COOKIE",
    403
)]
#[case::form_of_another_site(
    "POST /api/runs/RUN/stop HTTP/1.1\r\nHost: HOST\r\nOrigin: https://evil.example\r\nContent-Type: application/json\r\nCookie: COOKIE",
    403
)]
#[case::sandboxed_frame(
    "POST /api/runs/RUN/stop HTTP/1.1\r\nHost: HOST\r\nOrigin: null\r\nContent-Type: application/json\r\nCookie: COOKIE",
    403
)]
#[case::another_port(
    "POST /api/runs/RUN/stop HTTP/1.1\r\nHost: HOST\r\nOrigin: http://127.0.0.1:1\r\nContent-Type: application/json\r\nCookie: COOKIE",
    403
)]
#[case::session_without_origin(
    "POST /api/runs/RUN/stop HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nCookie: COOKIE",
    403
)]
#[case::text_plain(
    "POST /api/runs/RUN/stop HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\nContent-Type: text/plain\r\nCookie: COOKIE",
    415
)]
#[case::plain_form(
    "POST /api/runs/RUN/stop HTTP/1.1\r\nHost: HOST\r\nOrigin: http://HOST\r\nContent-Type: application/x-www-form-urlencoded\r\nCookie: COOKIE",
    415
)]
#[case::cross_site_fetch(
    "GET /api/runs HTTP/1.1\r\nHost: HOST\r\nSec-Fetch-Site: cross-site\r\nCookie: COOKIE",
    403
)]
#[case::same_site_fetch(
    "GET /api/runs HTTP/1.1\r\nHost: HOST\r\nSec-Fetch-Site: same-site\r\nCookie: COOKIE",
    403
)]
#[case::dots_in_the_path(
    "GET /x/../api/runs HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN",
    400
)]
#[case::encoded_dots("GET /api/health/%2e%2e/runs HTTP/1.1\r\nHost: HOST", 400)]
#[case::encoded_slash("GET /api%2fruns HTTP/1.1\r\nHost: HOST", 400)]
#[case::double_slash("GET //api/runs HTTP/1.1\r\nHost: HOST", 400)]
#[case::public_prefix("GET /api/healthy HTTP/1.1\r\nHost: HOST", 401)]
#[case::no_token("GET /api/runs HTTP/1.1\r\nHost: HOST", 401)]
#[case::wrong_token(
    "GET /api/runs HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer ralph_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    401
)]
#[case::session_as_a_token("GET /api/runs HTTP/1.1\r\nHost: HOST\r\nCookie: ralph_session=TOKEN", 401)]
#[case::token_in_the_query("GET /api/runs?token=TOKEN HTTP/1.1\r\nHost: HOST", 401)]
#[case::document_without_token("GET /api/openapi.json HTTP/1.1\r\nHost: HOST", 401)]
#[case::traversal(
    "GET /api/runs/RUN/file?path=.ralph/../../../../../../../../etc/passwd HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN",
    404
)]
#[case::traversal_by_the_run(
    "GET /api/runs/..%2f..%2fetc HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN",
    400
)]
#[case::long_target_without_end(&long_target(), 414)]
fn refused(#[case] attack: &str, #[case] status: u16) {
    let target = Target::new();
    let answer = target.send(attack);
    answer.expect_problem(status, "");
    assert!(!answer.body.contains("root:"), "{answer:?}");
    assert!(
        !answer.headers.contains("access-control-allow-origin"),
        "{answer:?}"
    );
    assert!(
        answer.headers.contains("x-content-type-options: nosniff"),
        "{answer:?}"
    );
    let status = target.service.place.status();
    assert_eq!(status["interventions"], json!([]));
}

fn long_target() -> String {
    format!(
        "GET /api/runs?after={} HTTP/1.1\r\nHost: HOST",
        "a".repeat(10_000)
    )
}

#[rstest]
#[case::without_login("", 401)]
#[case::of_another_site("Origin: https://evil.example\r\nCookie: COOKIE\r\n", 403)]
#[case::of_a_sandboxed_frame("Origin: null\r\nCookie: COOKIE\r\n", 403)]
#[case::without_origin("Cookie: COOKIE\r\n", 403)]
#[case::of_another_site_with_a_token("Origin: https://evil.example\r\nAuthorization: Bearer TOKEN\r\n", 403)]
fn a_socket_is_refused(#[case] headers: &str, #[case] status: u16) {
    let target = Target::new();
    let answer = target.send(&format!(
        "GET /api/events HTTP/1.1\r\nHost: HOST\r\n{headers}{UPGRADE}"
    ));
    answer.expect_problem(status, "");
}

#[rstest]
#[case::malformed("{\"text\": ")]
#[case::another_type("[1, 2, 3]")]
#[case::deep(&"[".repeat(100_000))]
#[case::not_utf8("\"\\ud800\"")]
fn a_malformed_body_is_refused(#[case] body: &str) {
    let target = Target::new();
    let service = &target.service;
    let head = format!(
        "POST /api/runs/{}/signs HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        service.place.run_id(),
        service.address,
        service.token,
        body.len()
    );
    service.raw(&head).expect_problem(400, "the body is not valid");
}

/// How many answers a connection gives to these bytes. The client leaves it open.
fn answers(service: &Service, bytes: &str) -> (usize, String) {
    let mut stream = TcpStream::connect(&service.address).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    (text.matches("HTTP/1.1 ").count(), text)
}

#[rstest]
#[case::length_first("Content-Length: LENGTH\r\nTransfer-Encoding: chunked\r\n", 204)]
#[case::encoding_first("Transfer-Encoding: chunked\r\nContent-Length: LENGTH\r\n", 204)]
#[case::two_lengths("Content-Length: 5\r\nContent-Length: LENGTH\r\n", 400)]
fn a_smuggled_second_request_is_not_read(#[case] headers: &str, #[case] status: u16) {
    let target = Target::new();
    let service = &target.service;
    let access = format!(
        "Host: {}\r\nAuthorization: Bearer {}\r\n",
        service.address, service.token
    );
    let inner = format!(
        "DELETE /api/runs/{} HTTP/1.1\r\n{access}\r\n",
        service.place.run_id()
    );
    // A proxy that goes by the length takes all of it for one body.
    let body = format!("0\r\n\r\n{inner}");
    let headers = headers.replace("LENGTH", &body.len().to_string());
    let outer =
        format!("POST /api/logout HTTP/1.1\r\n{access}Content-Type: application/json\r\n{headers}\r\n{body}");
    let (count, text) = answers(service, &outer);
    assert_eq!(count, 1, "{text}");
    assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    assert_eq!(service.place.runs().len(), 1);
    // The same connection does answer two requests where both are meant.
    let health = format!("GET /api/health HTTP/1.1\r\nHost: {}\r\n\r\n", service.address);
    let last = health.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    assert_eq!(answers(service, &format!("{health}{last}")).0, 2);
}

#[test]
fn names_of_proxies_are_accepted_only_where_configured() {
    let place = done();
    let access =
        "[api]\nallowed_hosts = [\"ralph.example\"]\nallowed_origins = [\"https://pages.example\"]\n";
    user_file(&place, access);
    let service = Service::start(place);
    let token = create_token(&service.place, "steerer", "steer");
    let stop = format!("/api/runs/{}/stop", service.place.run_id());
    let send = |host: &str, origin: &str| {
        let headers = format!("Host: {host}\r\nOrigin: {origin}\r\nAuthorization: Bearer {token}\r\n");
        service
            .raw(&request("POST", &stop, &headers, Some(&json!({}))))
            .status
    };
    // It is done, so what passes the checks is refused by the run.
    assert_eq!(send("ralph.example", "https://ralph.example"), 422);
    assert_eq!(send(&service.address, "https://pages.example"), 422);
    assert_eq!(send(&service.address, "https://ralph.example.evil"), 403);
    assert_eq!(send("pages.example", "https://pages.example"), 403);
}

#[test]
fn a_project_does_not_open_the_api() {
    let place = done();
    let config = std::fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    place.write(
        "ralph.toml",
        &format!("{config}[api]\ndangerously_allow_local = true\n"),
    );
    let refused = place.run(&["serve", "--listen", "127.0.0.1:0"]);
    refused.expect(
        2,
        &["api.dangerously_allow_local", "a project or a task cannot set"],
    );
}
