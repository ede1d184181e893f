//! `ralph network`, as a person uses it.

use rstest::rstest;
use serde_json::{Value, json};

use crate::need;
use crate::support::ralph::{Place, finish, script, whole_task};
use crate::support::skip;

const CONFIG: &str = "\
[sandbox.network]
allowed = ['github.com', 'GET docs.example/api/*', 'GET seen.example/api/*']
presets = ['anthropic', 'packages:npm']
denied = ['gist.github.com']
inspect = ['seen.example']
";

#[rstest]
#[case(&["github.com"], 0, "allowed: github.com:443: by `github.com` (ralph.toml:2:12)")]
#[case(&["github.com:22"], 1, "denied: github.com:22: port 22 not in policy; `github.com` (ralph.toml:2:12) does not cover it")]
#[case(&["gist.github.com"], 1, "denied: gist.github.com:443: denied by `gist.github.com` (ralph.toml:4:11)")]
#[case(&["statsig.anthropic.com"], 0, "allowed: statsig.anthropic.com:443: by `statsig.anthropic.com` (preset `anthropic`, ralph.toml:3:12)")]
#[case(&["npm.corp.example"], 0, "allowed: npm.corp.example:443: by `npm.corp.example` (.npmrc:1, preset `packages:npm`, ralph.toml:3:25)")]
#[case(&["evil.example"], 1, "denied: evil.example:443: host not in policy")]
#[case(&["10.0.0.1"], 1, "denied: 10.0.0.1:443: the policy allows host names, not IP addresses")]
#[case(&["docs.example:80", "--method", "GET", "--path", "/api/x"], 0, "allowed: docs.example:80: by `GET docs.example/api/*` (ralph.toml:2:26)")]
#[case(&["docs.example", "--method", "GET", "--path", "/api/x"], 1, "denied: docs.example:443: `GET docs.example/api/*` (ralph.toml:2:26) matches on method or path, and this connection is not inspected")]
#[case(&["seen.example", "--method", "GET", "--path", "/api/x"], 0, "allowed: seen.example:443 (inspected): by `GET seen.example/api/*` (ralph.toml:2:52)")]
#[case(&["seen.example", "--method", "POST", "--path", "/api/x"], 1, "denied: seen.example:443 (inspected): method or path not in policy; `GET seen.example/api/*` (ralph.toml:2:52) does not cover it")]
#[case(&["seen.example"], 1, "denied: seen.example:443 (inspected): `GET seen.example/api/*` (ralph.toml:2:52) depends on the request: add --method and --path")]
fn check_says_by_which_line(#[case] args: &[&str], #[case] code: i32, #[case] expected: &str) {
    let place = Place::new();
    place.write("ralph.toml", CONFIG);
    place.write(".npmrc", "registry=https://npm.corp.example/");
    let ended = place.run(&[&["network", "check"], args].concat());
    let repo = format!("{}/", place.repo().display());
    assert_eq!(ended.stdout.trim_end().replace(&repo, ""), expected, "{ended:?}");
    assert_eq!(ended.code, Some(code));
}

#[rstest]
#[case("npm.corp.example", json!("npm.corp.example"), json!(".npmrc:1, preset `packages:npm`, ralph.toml:3:25"))]
#[case("gist.github.com", json!("gist.github.com"), json!("ralph.toml:4:11"))]
#[case("evil.example", Value::Null, Value::Null)]
fn check_prints_the_line_and_its_place_as_json(#[case] host: &str, #[case] line: Value, #[case] at: Value) {
    let place = Place::new();
    place.write("ralph.toml", CONFIG);
    place.write(".npmrc", "registry=https://npm.corp.example/");
    let ended = place.run(&["network", "check", host, "--json"]);
    let repo = format!("{}/", place.repo().display());
    let printed: Value = serde_json::from_str(&ended.stdout.replace(&repo, "")).unwrap();
    assert_eq!((&printed["line"], &printed["place"]), (&line, &at), "{printed}");
}

#[rstest]
#[case::host(&["evil.example"], Some("evil.example"))]
#[case::other_port(&["evil.example:22"], Some("evil.example:22"))]
#[case::port(&["github.com:22"], Some("github.com:22"))]
#[case::request(&["seen.example", "--method", "POST", "--path", "/api/x"], Some("POST seen.example/api/x"))]
#[case::address(&["10.0.0.1"], None)]
#[case::denied(&["gist.github.com"], None)]
fn a_denial_names_the_rule_that_would_allow_it(#[case] args: &[&str], #[case] rule: Option<&str>) {
    let place = Place::new();
    place.write("ralph.toml", CONFIG);
    let ended = place.run(&[&["network", "check"], args].concat());
    let next = ended.stderr.lines().find(|line| line.starts_with("next: "));
    let expected = rule.map(|rule| format!("next: add `{rule}` to sandbox.network.allowed"));
    assert_eq!(next, expected.as_deref(), "{ended:?}");
}

#[rstest]
#[case::check(&["network", "check", "evil.example"])]
#[case::rules(&["network", "rules"])]
fn a_provider_that_enforces_no_policy_is_named(#[case] args: &[&str]) {
    let place = Place::new();
    place.write("ralph.toml", CONFIG);
    let warning = "warning: `local` enforces no network policy: a run there reaches every host";
    let ended = place.run(&[args, &["--set", "sandbox.type=local"]].concat());
    assert!(ended.stderr.contains(warning), "{ended:?}");
    assert!(!ended.stderr.contains("next: "), "{ended:?}");
    assert!(!place.run(args).stderr.contains("warning: "));
}

#[test]
fn check_refuses_what_is_no_host() {
    let ended = Place::new().run(&["network", "check", "https://github.com"]);
    ended.expect_refused(&["expected a host name without `http://`, as in `example.com`"]);
}

#[test]
fn suggest_makes_an_allowlist_of_what_a_run_reached() {
    let place = Place::new();
    place.run_script(&script([whole_task()])).expect(0, &[]);
    let id = place.run_id();
    let file = place.run_dir().join("network.jsonl");
    let none = place.run(&["network", "suggest", "--from", &id]);
    assert_eq!(none.code, Some(1), "{none:?}");
    let record = |host: &str, port: u16, verdict: &str, needs: &str| {
        format!(
            "{{\"at\":\"2026-01-01T00:00:00Z\",\"protocol\":\"tls\",\"host\":\"{host}\",\"port\":{port},\"verdict\":\"{verdict}\",\"rule\":\"\"{needs},\"sent\":1,\"received\":1}}\n"
        )
    };
    let lines = [
        record("github.com", 443, "allowed", ""),
        record("github.com", 443, "allowed", ""),
        record("db.example", 5432, "allowed", ""),
        record("evil.example", 443, "denied", ""),
        record(
            "docs.example",
            443,
            "denied",
            r#","needs":{"line":"POST docs.example/x"}"#,
        ),
        record("seen.example", 443, "denied", r#","needs":"inspection""#),
    ];
    std::fs::write(file, lines.concat()).unwrap();
    let ended = place.run(&["network", "suggest", "--from", &id]);
    assert_eq!(
        ended.stdout,
        "[sandbox.network]\npolicy = \"allowlist\"\nallowed = [\n  \"github.com\", # reached 2x\n  \"db.example:5432\", # reached 1x\n  # \"POST docs.example/x\", # blocked 1x\n  # \"evil.example\", # blocked 1x\n]\n\
         # blocked seen.example 1x: to allow, add \"seen.example\" to sandbox.network.inspect: a policy line depends on the request, which is encrypted\n"
    );
    ended.expect(0, &["next: put these lines into `ralph.toml`"]);
}

#[test]
fn recording_needs_a_person_at_the_terminal() {
    let place = Place::new();
    place.write("ralph.toml", "[sandbox]\ntype = 'local'\n[sandbox.network]\npolicy = 'record'\non_unenforceable = 'warn'\n[agent]\nname = 'actions'\n");
    let ended = place.run(&["run"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.stderr.contains("no person is at the terminal"),
        "{}",
        ended.stderr
    );
}

#[rstest]
#[case::local("", &["api.example", "--yes"], "allows every host already")]
#[case::address("", &["10.0.0.1", "--yes"], "is an IP address")]
#[case::wildcard("", &["*.api.example", "--yes"], "is a wildcard")]
#[case::private("", &["metadata.google.internal", "--yes"], "is not a public name")]
#[case::not_listed("may_be_allowed = ['*.corp.example']", &["api.example", "--yes"], "lists *.corp.example")]
#[case::none("may_be_allowed = []", &["api.example", "--yes"], "nothing may be added")]
#[case::denied("denied = ['api.example']", &["api.example", "--yes"], "is denied by `api.example` (")]
#[case::unattended("may_be_allowed = ['*.corp.example']", &["api.corp.example"], "no person is at the terminal")]
fn allow_refuses_what_may_not_be_added(#[case] rules: &str, #[case] args: &[&str], #[case] said: &str) {
    let place = crate::control::resting();
    let id = place.run_id();
    let config = std::fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    let sealed = format!("policy = 'allowlist'\n{rules}");
    let config = config.replace("policy = \"allow-all\"", &sealed);
    // Only a provider that enforces names asks the policy. Nothing is started here.
    let kind = if said.contains("already") {
        "local"
    } else {
        "docker"
    };
    place.write("ralph.toml", &config.replace("\"local\"", &format!("'{kind}'")));
    let ended = place.run(&[&["network", "allow", &id], args].concat());
    ended.expect_refused(&[said]);
    assert_eq!(place.status()["interventions"], json!([]));
}

#[test]
fn allow_without_hosts_lists_what_was_blocked() {
    let place = crate::control::resting();
    let id = place.run_id();
    place.run(&["network", "allow", &id]).expect(
        0,
        &[
            "No host was blocked",
            "only sandboxes behind the gateway are recorded, not those of `local`",
        ],
    );
    let record = |host: &str, verdict: &str| {
        format!(
            "{{\"at\":\"2026-01-01T00:00:00Z\",\"protocol\":\"tls\",\"host\":\"{host}\",\"port\":443,\"verdict\":\"{verdict}\",\"rule\":\"\",\"sent\":1,\"received\":1}}\n"
        )
    };
    let lines = record("evil.example", "denied") + &record("good.example", "allowed");
    std::fs::write(place.run_dir().join("network.jsonl"), lines).unwrap();
    let listed = place.run(&["network", "allow", &id]);
    assert_eq!(
        listed.expect(0, &["These hosts were blocked"]).stdout,
        "evil.example\n"
    );
}

#[rstest]
#[case::agreed("y\\n", 0, &["allow network access to api.corp.example"])]
#[case::declined("n\\n", 1, &[])]
#[case::not_answered("\\n", 1, &[])]
fn allow_asks_the_person_at_the_terminal(#[case] typed: &str, #[case] code: i32, #[case] left: &[&str]) {
    let script = need!(skip::program("script"));
    let place = crate::control::resting();
    let id = place.run_id();
    let config = std::fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    let config = config.replace("policy = \"allow-all\"", "policy = 'allowlist'");
    place.write("ralph.toml", &config.replace("\"local\"", "'docker'"));
    let args = ["network", "allow", &id, "api.corp.example"];
    let ended = finish(&mut place.on_terminal(&script, typed, &args));
    assert_eq!(ended.code, Some(code), "{ended:?}");
    assert!(ended.stdout.contains("api.corp.example? [y/N]"), "{ended:?}");
    assert_eq!(
        ended.stdout.contains("nothing was allowed"),
        code != 0,
        "{ended:?}"
    );
    let rows = place.status()["interventions"].clone();
    let rows = rows.as_array().unwrap().iter();
    let what: Vec<String> = rows.map(|row| row["what"].as_str().unwrap().to_owned()).collect();
    assert_eq!(what, left);
}
