//! `ralph selftest` and `ralph selftest --escapes`, for every provider that has a fake.

use rstest::rstest;
use serde_json::{Value, json};

use crate::need;
use crate::site::{Ground, Program};
use crate::support::chat_server::{Answer, ChatServer};
use crate::support::daytona::{Daytona, KEY};
use crate::support::ralph::{Ended, Place, finish};
use crate::support::security_page::check_column;
use crate::support::{base, engine};

/// A model for the agent `actions`, served by this process.
async fn model() -> (ChatServer, String) {
    let answer = json!({"summary": "ready", "actions": []}).to_string();
    let server = ChatServer::start([Answer::text(&answer)]).await;
    let setting = format!("model_endpoint.base_url={}", server.base_url());
    (server, setting)
}

fn passed(ended: &Ended) {
    ended.expect(0, &[]);
    let count = |word: &str| ended.stdout.lines().filter(|line| line.starts_with(word)).count();
    assert!(count("PASS  ") > 8 && count("FAIL  ") == 0, "{}", ended.stdout);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_passes_and_nothing_is_left(
    #[values(Program::Tart, Program::Sbx, Program::DockerSandbox)] program: Program,
) {
    let ground = need!(Ground::new(program).await);
    let (place, (_server, endpoint)) = (Place::new(), model().await);
    let ended = finish(&mut ground.ralph(&place, &["selftest", "--set", &endpoint]));
    passed(&ended);
    let kind = match program {
        Program::Tart => "\nPASS  template agent-loop-template-actions-",
        Program::Sbx | Program::DockerSandbox => "\nPASS  image ralph-test-base:",
    };
    let stdout = format!("\n{}", ended.stdout);
    assert!(stdout.contains(kind), "{stdout}");
    assert!(ground.vms().is_empty());
}

/// Tart has no planned image: its template is what `sandbox.image` and the script make.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_without_git_is_reported_with_how_to_get_it() {
    let ground = need!(Ground::new(Program::Tart).await);
    let (place, (_server, endpoint)) = (Place::new(), model().await);
    place.write(".agent-loop/dependencies", "rm \"$(command -v git)\"\n");
    let ended = finish(&mut ground.ralph(&place, &["selftest", "--set", &endpoint]));
    ended.expect(1, &["ralph: 1 of "]);
    let next = "(next: install git with the script `.agent-loop/dependencies`, or name an image that has it in `sandbox.image`)";
    let git = ended.stdout.lines().find(|line| line.starts_with("FAIL  git "));
    assert!(git.is_some_and(|line| line.ends_with(next)), "{}", ended.stdout);
    assert!(ground.vms().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daytona_sandbox_passes() {
    let engine = need!(engine::engine().await);
    let image = need!(base::image(&engine).await);
    let daytona = Daytona::start(engine).await;
    let (place, (_server, endpoint)) = (Place::new(), model().await);
    let image = format!("sandbox.image={image}");
    let mut command = place.ralph(&[
        "selftest", "--type", "daytona", "--set", &image, "--set", &endpoint,
    ]);
    command
        .env("DAYTONA_API_URL", format!("{}/api", daytona.url()))
        .env("DAYTONA_API_KEY", KEY);
    let ended = finish(&mut command);
    passed(&ended);
    assert!(ended.stdout.contains("PASS  snapshot ralph-"), "{}", ended.stdout);
    assert!(!format!("{ended:?}").contains(KEY));
}

/// What stands for the program of a VM provider on the security page.
const A_FAKE: &str = "a fake";

fn verdicts(ground: &Ground, place: &Place) -> Vec<Value> {
    let ended = finish(&mut ground.ralph(place, &["selftest", "--escapes", "--json"]));
    ended.expect(0, &[]);
    let matrix: Value = serde_json::from_str(&ended.stdout).unwrap();
    matrix["cases"].as_array().unwrap().clone()
}

fn not_enforceable(cases: &[Value]) -> Vec<&str> {
    let cases = cases.iter().filter(|case| case["verdict"] == "not-enforceable");
    cases.map(|case| case["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tart_enforces_everything_but_its_known_gaps() {
    let (ground, _) = need!(Ground::allowing(Program::Tart, &[]).await);
    let cases = verdicts(&ground, &Place::new());
    assert!(cases.len() > 20, "{}", cases.len());
    let expected = [
        "privileged actions are impossible",
        "sockets are allowed by family and protocol",
        "programs that the agent changed do not make evidence pass",
        "services at the gateway's own address are unreachable",
        "a request inside TLS names the host of the client hello",
    ];
    assert_eq!(not_enforceable(&cases), expected);
    check_column("tart", Some(A_FAKE), &cases);
    assert!(ground.vms().is_empty());
}

#[tokio::test]
async fn docker_sandbox_enforces_everything_but_its_known_gaps() {
    let (ground, _) = need!(Ground::allowing(Program::Sbx, &[]).await);
    let cases = verdicts(&ground, &Place::new());
    let expected = [
        "privileged actions are impossible",
        "sockets are allowed by family and protocol",
        "programs that the agent changed do not make evidence pass",
        "an allowed name does not reach a private network",
        "a request inside TLS names the host of the client hello",
    ];
    assert_eq!(not_enforceable(&cases), expected);
    check_column("docker-sandbox", Some(A_FAKE), &cases);
}

#[tokio::test]
async fn without_softnet_tart_enforces_nothing_and_is_not_attacked() {
    let ground = need!(Ground::new(Program::Tart).await);
    std::fs::remove_file(ground.site.path("bin/softnet")).unwrap();
    let cases = verdicts(&ground, &Place::new());
    for case in cases.iter().filter(|case| case["verdict"] != "not-tried") {
        assert_eq!(case["verdict"], "not-enforceable", "{case}");
        assert!(
            case["reason"]
                .as_str()
                .unwrap()
                .contains("softnet is not installed"),
            "{case}"
        );
    }
}
