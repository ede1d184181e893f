//! Runs for others to look at: as a file, and by a link to one run alone.

use serde_json::json;

use crate::service::{Answer, Service, done, request};
use crate::sockets::Client;
use crate::support::ralph::{Place, doing, run, script, whole_task};

/// A value of a credential that the host of the service knows.
const SECRET: &str = "sk-test-0123456789<&>abcdefghij";

fn share(service: &Service, run: &str) -> String {
    let made = service.post(&format!("/api/runs/{run}/share"), &json!({"hours": 2}));
    let link = made.expect(201);
    let path = link["path"].as_str().unwrap();
    path.strip_prefix("/login?secret=").unwrap().to_owned()
}

/// The cookie that a link is exchanged for.
fn enter(service: &Service, secret: &str) -> Answer {
    let headers = format!(
        "Host: {0}\r\nOrigin: http://{0}\r\nSec-Fetch-Site: same-origin\r\n",
        service.address
    );
    service.raw(&request(
        "POST",
        "/api/login",
        &headers,
        Some(&json!({"secret": secret})),
    ))
}

fn visit(service: &Service, cookie: &str, method: &str, path: &str) -> Answer {
    let headers = format!(
        "Host: {0}\r\nOrigin: http://{0}\r\nSec-Fetch-Site: same-origin\r\nCookie: {cookie}\r\n",
        service.address
    );
    service.raw(&request(method, path, &headers, Some(&json!({}))))
}

/// A run that printed a text, and [`SECRET`] before the host knew that it is a credential.
fn printed_secret(text: &str) -> Place {
    let place = Place::new();
    // In two parts, so that nothing but its output has it in one.
    let prints = format!("echo '{text}'; printf %s 'sk-test-0123456789'; echo '<&>abcdefghij'");
    place
        .run_script(&script([doing([run(&prints)]), whole_task()]))
        .expect(0, &["done"]);
    let events = std::fs::read_to_string(place.run_dir().join("events.jsonl")).unwrap();
    assert!(events.contains(SECRET));
    place.write(".env", &format!("ANTHROPIC_API_KEY='{SECRET}'\n"));
    place
}

#[test]
fn a_link_shows_one_run_and_nothing_else() {
    let place = done();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let service = Service::start(place);
    let list = service.get("/api/runs");
    let [run, other] = [0, 1].map(|row: usize| list["runs"][row]["run"].as_str().unwrap().to_owned());
    let secret = share(&service, &run);
    // Several people can use it.
    let first = enter(&service, &secret);
    let session = first.expect(200);
    assert_eq!(
        (&session["scope"], &session["run"]),
        (&"read".into(), &run.clone().into())
    );
    let cookie = enter(&service, &secret).cookie.unwrap();
    for path in ["", "/log", "/iterations", "/diff", "/files", "/export", "/events"] {
        let answer = visit(&service, &cookie, "GET", &format!("/api/runs/{run}{path}"));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let answer = visit(&service, &cookie, "GET", &format!("/api/runs/{other}{path}"));
        answer.expect_problem(403, "may only look at run");
    }
    visit(&service, &cookie, "GET", "/api/session").expect(200);
    for path in [
        "/api/runs",
        "/api/models",
        "/api/credentials",
        "/api/images",
        "/api/workers",
        "/api/openapi.json",
        "/metrics",
        &format!("/api/runs/%72{}", &run[1..]),
    ] {
        visit(&service, &cookie, "GET", path).expect_problem(403, "may only look at run");
    }
    for order in ["pause", "stop", "share", "notes"] {
        let answer = visit(&service, &cookie, "POST", &format!("/api/runs/{run}/{order}"));
        answer.expect_problem(403, "needs the scope");
    }
    service
        .ask("DELETE", &format!("/api/runs/{run}/share"), None)
        .expect(204);
    visit(&service, &cookie, "GET", &format!("/api/runs/{run}")).expect_problem(401, "unknown or expired");
    enter(&service, &secret).expect_problem(401, "unknown, expired or used");
}

#[tokio::test]
async fn a_link_shows_no_secret_that_the_host_knows() {
    let place = printed_secret("two words");
    let id = place.run_id();
    let service = Service::start(place);
    let own = service.ask("GET", &format!("/api/runs/{id}/log"), None);
    assert!(own.body.contains(SECRET), "{own:?}");
    let cookie = enter(&service, &share(&service, &id)).cookie.unwrap();
    for path in ["/log", "/events"] {
        let answer = visit(&service, &cookie, "GET", &format!("/api/runs/{id}{path}"));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(!answer.body.contains(SECRET), "{path}: {answer:?}");
        assert!(answer.body.contains("[redacted]"), "{path}: {answer:?}");
    }
    let origin = format!("http://{}", service.address);
    let mut client = Client::connect_with(&service, &[("cookie", cookie), ("origin", origin)]).await;
    client.subscribe(&id, Some(0)).await;
    let mut received = String::new();
    while !received.contains("run_ended") {
        received += &client.receive().await.unwrap().to_string();
    }
    assert!(
        received.contains("[redacted]") && !received.contains(SECRET),
        "{received}"
    );
}

#[test]
fn a_link_lasts_as_long_as_was_asked_for() {
    let service = Service::start(done());
    let run = service.place.run_id();
    for hours in [0, 721] {
        let made = service.post(&format!("/api/runs/{run}/share"), &json!({"hours": hours}));
        made.expect_problem(400, "1 to 720 hours");
    }
    let cookie = enter(&service, &share(&service, &run)).headers;
    let (_, rest) = cookie.split_once("max-age=").unwrap();
    let seconds: u64 = rest.split(';').next().unwrap().parse().unwrap();
    assert!((7100..=7200).contains(&seconds), "{cookie}");
}

#[tokio::test]
async fn the_socket_of_a_link_watches_its_run_alone() {
    let place = done();
    place.run_script(&script([whole_task()])).expect(0, &["done"]);
    let service = Service::start(place);
    let list = service.get("/api/runs");
    let [run, other] = [0, 1].map(|row: usize| list["runs"][row]["run"].as_str().unwrap().to_owned());
    let cookie = enter(&service, &share(&service, &run)).cookie.unwrap();
    let origin = format!("http://{}", service.address);
    let mut client = Client::connect_with(&service, &[("cookie", cookie), ("origin", origin)]).await;
    for topic in ["runs", &other] {
        client.say(&json!({"subscribe": topic})).await;
        let reply = client.receive().await.unwrap();
        assert_eq!(reply["problem"]["status"], 403, "{topic}: {reply}");
    }
    client.subscribe(&run, None).await;
}

#[test]
fn an_exported_run_is_one_file_without_scripts_and_secrets() {
    let place = printed_secret("</pre><script>top.hit=1</script><img src=https://attacker.test/x>");
    let id = place.run_id();
    let service = Service::start(place);
    let answer = service.ask("GET", &format!("/api/runs/{id}/export"), None);
    assert_eq!(answer.status, 200, "{answer:?}");
    for header in [
        "text/html",
        "attachment; filename=\"ralph-",
        "default-src 'none'",
        "sandbox",
    ] {
        assert!(answer.headers.contains(header), "{header}: {}", answer.headers);
    }
    let html = &answer.body;
    for said in [
        "Say hello",
        "grep -q hello a.txt",
        "+hello",
        "iteration 1 with",
        "[redacted]",
    ] {
        assert!(html.contains(said), "{said} is not in {html}");
    }
    for forbidden in [
        "<script",
        "<img",
        "<link",
        "url(",
        "@import",
        SECRET,
        "9&lt;&amp;&gt;a",
    ] {
        assert!(!html.contains(forbidden), "{forbidden} is in {html}");
    }
}

#[test]
fn a_secret_that_is_cut_in_two_is_not_shown_in_part() {
    let place = done();
    place.write(".env", &format!("ANTHROPIC_API_KEY='{SECRET}'\n"));
    let (id, notes) = (place.run_id(), place.run_dir().join("ralph/notes.md"));
    let service = Service::start(place);
    let cookie = enter(&service, &share(&service, &id)).cookie.unwrap();
    // How much is shown of a file, by the way to it.
    for (path, shown) in [("/export", 256 << 10), ("/file?path=.ralph/notes.md", 1 << 20)] {
        let before = "x".repeat(shown - SECRET.len() / 2);
        std::fs::write(&notes, before + SECRET).unwrap();
        let answer = visit(&service, &cookie, "GET", &format!("/api/runs/{id}{path}"));
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.body.contains("xxxx"), "{path}");
        assert!(!answer.body.contains("sk-test-"), "{path}");
    }
}
