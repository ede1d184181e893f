//! Which agent works: another one on the ladder, one from the configuration, none.

use crate::bench::{Bench, KEY, Program, Within, in_circles, programs, two_sessions};
use crate::need;
use crate::support::engine;
use crate::support::model_server::{Api, ModelServer, Teller};
use crate::support::ralph::{Place, finish};

#[tokio::test(flavor = "multi_thread")]
async fn the_ladder_can_go_on_with_another_agent() {
    let circles = Teller::by(|asked| in_circles(asked.turn));
    let bench = need!(Bench::within(Within::Directory, Program::Claude, circles).await);
    let whole = Teller::of(two_sessions());
    let other = ModelServer::start(Api::Responses, KEY, whole).await;
    bench.configure(&format!(
        "fallback_profile = \"second\"\n[models.second]\nlitellm_model = \"x/second-model\"\nbase_url = \"{}\"\n\
         agent = \"codex\"\nagent_model = \"second-model\"\n",
        other.base_url()
    ));
    let ended = finish(
        bench
            .ralph(&["run", "--max-iterations", "12"])
            .env("OPENAI_API_KEY", KEY),
    );
    ended.expect(
        0,
        &[
            "agent claude: ",
            "agent codex: ",
            "ladder: fallback",
            "codex answered",
            "done: ",
        ],
    );
    assert_eq!(other.asked().len(), 6);
}

const SCRIPT: &str = r#"
grep -q 'Say hello' "$1" && grep -q 'Say hello' || exit 3
for file in a b; do echo hello > $file.txt; done
git add a.txt b.txt && git commit --quiet --message "Say hello"
sed -i 's/- \[ \]/- [x]/' ralph_task.md
echo "I said hello."
"#;

#[test]
fn any_program_can_be_the_agent() {
    let place = Place::new();
    place.write("agent.sh", SCRIPT);
    place.commit("Bring an agent");
    place.write("ralph.toml", &custom(r#"["sh", "agent.sh", "{prompt_file}"]"#));
    let ended = place.run(&["run"]);
    ended.expect(0, &["agent custom: ", "I said hello.", "done: "]);
    assert_eq!(place.status()["iterations"], 1);
}

#[test]
fn a_missing_agent_is_reported_before_anything_else() {
    let place = Place::new();
    place.write("ralph.toml", &custom(r#"["no-such-agent-anywhere"]"#));
    let ended = place.run(&["run"]);
    ended.expect(
        1,
        &[
            "NOT READY: agent custom: it does not run in the sandbox",
            "hint: use an image that contains it",
        ],
    );
    assert!(!ended.stderr.contains("iteration 1"), "{ended:?}");
}

#[test]
fn a_custom_agent_without_a_command_is_refused() {
    let place = Place::new();
    place.write("ralph.toml", &custom("[]"));
    place.run(&["run"]).expect_refused(&[
        "the agent `custom` has no command",
        "hint: set it in `ralph.toml`, for example",
    ]);
}

#[test]
fn an_agent_that_reports_no_cost_needs_another_bound() {
    let place = Place::new();
    let task = crate::support::ralph::TASK.replace("max_tokens_total: 1000000", "max_cost_usd_estimate: 1");
    place.write("ralph_task.md", &task);
    place.write("ralph.toml", &custom(r#"["sh", "agent.sh"]"#));
    place.run(&["run"]).expect_refused(&[
        "the cost of the agent `custom` is unknown",
        "or budget.max_tokens_total",
    ]);
}

/// What `claude` says of its cost is said inside of the sandbox, by whatever runs there.
#[test]
fn the_word_of_a_brokered_agent_bounds_no_cost() {
    let place = Place::new();
    let task = crate::support::ralph::TASK.replace("max_tokens_total: 1000000", "max_cost_usd_estimate: 1");
    place.write("ralph_task.md", &task);
    place.write(
        "ralph.toml",
        "[agent]\nname = \"claude\"\n[sandbox]\ntype = \"local\"\n",
    );
    let mut command = place.ralph(&["run"]);
    command.env("ANTHROPIC_API_KEY", "sk-ant-api03-none");
    finish(&mut command).expect_refused(&[
        "the cost of the agent `claude` is unknown",
        "or budget.max_tokens_total",
    ]);
}

#[tokio::test]
async fn a_credential_goes_into_no_container_unasked() {
    let place = Place::new();
    place.write(
        "ralph.toml",
        "[agent]\nname = \"claude\"\n[sandbox]\ntype = \"docker\"\nimage = \"none\"\n[sandbox.network]\npolicy = \"allow-all\"\n",
    );
    let engine = need!(engine::engine().await).endpoint().to_string();
    let mut command = place.ralph(&["run"]);
    let refused = finish(command.env("ANTHROPIC_API_KEY", KEY).env("DOCKER_HOST", engine));
    refused.expect(
        2,
        &[
            "needs its credential inside the sandbox",
            "dangerously_pass_credential",
        ],
    );
}

#[test]
fn the_programs_are_the_pinned_ones() {
    let folder = need!(programs());
    let version = |name: &str| finish(std::process::Command::new(folder.join(name)).arg("--version")).stdout;
    assert!(version("claude").starts_with("2.1.325"), "{}", version("claude"));
    assert!(version("codex").contains("0.166.0"), "{}", version("codex"));
}

fn custom(command: &str) -> String {
    format!(
        "[agent]\nname = \"custom\"\n[agent.custom]\ncommand = {command}\n\
         [sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n"
    )
}
