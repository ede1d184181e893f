//! What `ralph init` writes for a project, and that it runs with nothing edited but the goal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rstest::rstest;
use serde_json::Value;

use crate::fake_engine;
use crate::need;
use crate::support::direct_server::{DirectServer, Flavour, KEY, Said};
use crate::support::ralph::{Place, finish, whole_task};
use crate::support::skip;

const NO_ENGINE: &str = "unix:///nonexistent/engine.sock";

/// A repository with a test, and nothing of ralph.
fn project() -> Place {
    let place = Place::bare();
    place.git(&["init", "--quiet", "--initial-branch=main"]);
    place.write("test.sh", "test ! -e broken\n");
    place.commit("Begin");
    place
}

fn init(place: &Place, args: &[&str]) -> Command {
    let mut command = place.ralph(&["init"]);
    command.args(args).env("DOCKER_HOST", NO_ENGINE);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn what_init_writes_runs_with_nothing_edited_but_the_goal() {
    let server = DirectServer::saying(Flavour::Zai, Said::Text(whole_task().to_string())).await;
    let place = project();
    let said = finish(init(&place, &[]).env("ZAI_API_KEY", KEY));
    said.expect(
        0,
        &[
            "tests by `sh test.sh`",
            "ralph.toml sets `local`",
            "Added `.env` to `.gitignore`",
        ],
    );
    assert!(!said.stderr.contains("`actions` needs"), "{said:?}");
    place.set_goal();
    place.write(".env", &format!("ZAI_API_KEY={KEY}\n"));
    let mut command = place.ralph(&["run"]);
    command
        .env("ZAI_BASE_URL", server.base_url())
        .env("DOCKER_HOST", NO_ENGINE);
    let ended = tokio::task::block_in_place(|| finish(&mut command));
    ended.expect(0, &["done: "]);
    assert!(
        place
            .noted("guardrails.md")
            .contains("### sign: never weaken a check")
    );
    let prompt = server.calls()[0]["messages"].to_string();
    assert!(prompt.contains("never weaken a check"), "{prompt}");
}

#[test]
fn init_writes_the_whole_set_readable_and_keys_private() {
    let place = project();
    finish(&mut init(&place, &[])).expect(
        0,
        &[
            "`actions` needs one key in `.env` or the environment: ZAI_API_KEY, OPENAI_API_KEY",
            "; or a model of Ollama in config/models.yaml, which needs none.",
        ],
    );
    for (name, mode) in [
        ("ralph_task.md", 0o644),
        ("ralph.toml", 0o644),
        ("config/models.yaml", 0o644),
        (".ralph/guardrails.md", 0o644),
        (".ralph/notes.md", 0o644),
        (".ralph/progress.md", 0o644),
        (".ralph/diagnostics.md", 0o644),
        (".env.example", 0o644),
        (".env", 0o600),
    ] {
        let metadata =
            fs::metadata(place.repo().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
    }
    let signs = fs::read_to_string(place.repo().join(".ralph/guardrails.md")).unwrap();
    assert_eq!(signs.matches("### sign: ").count(), 3, "{signs}");
    let listed = place.run(&["models", "--json"]).stdout;
    let rows: Value = serde_json::from_str(&listed).unwrap();
    let names: Vec<&str> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["profile"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["codex-like", "default-cheap", "strong-doctor"]);
    for row in rows.as_array().unwrap() {
        assert_eq!(
            (&row["price_from"], &row["key_found"]),
            (&"list".into(), &false.into()),
            "{row}"
        );
    }
}

#[test]
fn a_file_with_keys_that_others_can_read_is_closed() {
    let place = project();
    place.write(".env", "ZAI_API_KEY=mine\n");
    finish(&mut init(&place, &[])).expect(0, &["`.env` exists and is kept; now only you can read it."]);
    let env = place.repo().join(".env");
    assert_eq!(fs::metadata(&env).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(env).unwrap(), "ZAI_API_KEY=mine\n");
}

#[rstest]
#[case::zai("ZAI_API_KEY", "zai/")]
#[case::anthropic("ANTHROPIC_API_KEY", "anthropic/")]
#[case::openai("OPENAI_API_KEY", "openai/")]
#[case::gemini("GEMINI_API_KEY", "gemini/")]
#[case::openrouter("OPENROUTER_API_KEY", "openrouter/")]
fn one_key_serves_every_profile_that_init_writes(#[case] variable: &str, #[case] prefix: &str) {
    let place = project();
    finish(init(&place, &[]).env(variable, KEY)).expect(0, &[]);
    let mut models = place.ralph(&["models", "--json"]);
    let rows: Value = serde_json::from_str(&finish(models.env(variable, KEY)).stdout).unwrap();
    for row in rows.as_array().unwrap() {
        assert!(row["model"].as_str().unwrap().starts_with(prefix), "{row}");
        assert_eq!(row["missing"], Value::Null, "{row}");
        assert_ne!(row["price_from"], "unknown", "{row}");
    }
}

#[test]
fn what_is_there_is_kept_and_seeds_each_new_run() {
    let place = project();
    place.write(
        ".ralph/guardrails.md",
        "# Guardrails\n\n### sign: mine\n- trigger: t\n- instruction: i\n",
    );
    place.write(".ralph/notes.md", "# Notes\n\nUse the old parser.\n");
    place.write(".gitignore", "/.env\n");
    let said = finish(&mut init(&place, &[]));
    said.expect(
        0,
        &[
            "`.ralph/guardrails.md` exists and is kept.",
            "`.ralph/notes.md` exists and is kept.",
        ],
    );
    assert!(!said.stderr.contains(".gitignore"), "{said:?}");
    place.set_goal();
    place
        .run_script(&crate::support::ralph::script([whole_task()]))
        .expect(0, &["done: "]);
    assert!(place.noted("guardrails.md").contains("### sign: mine"));
    assert!(place.noted("notes.md").contains("Use the old parser."));
}

#[test]
fn a_configuration_without_a_task_is_kept() {
    let place = project();
    let own = "[agent]\nname = \"claude\"\n\n[sandbox]\ntype = \"local\"\n";
    place.write("ralph.toml", own);
    place.write(".gitignore", "target");
    finish(&mut init(&place, &["--agent", "codex"])).expect_refused(&[
        "ralph.toml` already exists",
        "without `--agent` and `--type` it is kept; `ralph init --force` overwrites it",
    ]);
    finish(&mut init(&place, &[])).expect(
        0,
        &["`ralph.toml` exists and is kept.", "`claude` needs a credential"],
    );
    let text = |name: &str| fs::read_to_string(place.repo().join(name)).unwrap();
    assert_eq!(text("ralph.toml"), own);
    assert_eq!(text(".gitignore"), "target\n.env\n");
    assert!(text("ralph_task.md").contains("\nmax_tokens_total: 2000000\n"));
}

#[test]
fn a_seed_behind_a_link_is_refused() {
    let place = project();
    place.write("elsewhere.txt", "a text that no prompt may have\n");
    finish(&mut init(&place, &[])).expect(0, &[]);
    let notes = place.repo().join(".ralph/notes.md");
    std::fs::remove_file(&notes).unwrap();
    std::os::unix::fs::symlink("../elsewhere.txt", &notes).unwrap();
    place.set_goal();
    let ended = place.run_script(&crate::support::ralph::script([whole_task()]));
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("notes.md") && ended.stderr.contains("not behind a link"),
        "{ended:?}"
    );
}

#[test]
fn agent_and_provider_can_be_given() {
    let place = project();
    finish(&mut init(&place, &["--agent", "claude", "--type", "docker"])).expect(
        0,
        &[
            "`claude` needs a credential: `ralph token store --agent claude`",
            "`docker` needs a container engine",
        ],
    );
    let shown = place.run(&["config", "show", "--json"]).stdout;
    let rows: Value = serde_json::from_str(&shown).unwrap();
    let value = |key: &str| {
        rows.as_array()
            .unwrap()
            .iter()
            .find(|row| row["key"] == key)
            .unwrap()["value"]
            .clone()
    };
    assert_eq!(
        (value("agent.name"), value("sandbox.type")),
        ("claude".into(), "docker".into())
    );
    let task = fs::read_to_string(place.repo().join("ralph_task.md")).unwrap();
    assert!(task.contains("\nmax_tokens_total: 2000000\n"), "{task}");
    finish(&mut init(&place, &["--force", "--agent", "unknown"])).expect_refused(&[
        "there is no agent `unknown`; expected one of actions, claude",
        "hint: name one of them",
    ]);
    finish(&mut init(&place, &["--force", "--agent", "custom"]))
        .expect(0, &["`custom` needs its command in `ralph.toml`"]);
}

#[test]
fn an_agent_on_the_host_itself_needs_its_program() {
    let place = project();
    let said = "`claude` on `local` needs its program: `npm install --global @anthropic-ai/claude-code`.";
    for (provider, path, is_said) in [
        ("local", place.bare_path(), true),
        ("docker", place.bare_path(), false),
        ("local", place.path_with("claude", "echo 2.0.0"), false),
    ] {
        let mut command = init(&place, &["--force", "--agent", "claude", "--type", provider]);
        let ended = finish(command.env("PATH", path));
        ended.expect(0, &["`claude` needs a credential"]);
        assert_eq!(ended.stderr.contains(said), is_said, "{provider}: {ended:?}");
    }
}

#[test]
fn on_a_terminal_init_asks_and_the_best_is_preselected() {
    let script = need!(skip::program("script"));
    let place = project();
    let mut command = place.on_terminal(&script, "codex\\n\\n", &["init"]);
    let ended = finish(command.env("DOCKER_HOST", NO_ENGINE).env("OPENAI_API_KEY", KEY));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    assert!(
        text.contains("name = \"codex\"") && text.contains("type = \"local\""),
        "{text}"
    );
    for line in [
        "Which agent? [actions]",
        "Which sandbox? [local]",
        "claude: needs a credential",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {ended:?}");
    }
}

#[test]
fn a_wrong_answer_to_init_is_asked_for_again() {
    let script = need!(skip::program("script"));
    let place = project();
    let mut command = place.on_terminal(&script, "zzz\\ncodex\\n\\n", &["init"]);
    let ended = finish(command.env("DOCKER_HOST", NO_ENGINE).env("OPENAI_API_KEY", KEY));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stdout.contains("there is no agent `zzz`; expected one of "),
        "{ended:?}"
    );
    assert_eq!(ended.stdout.matches("Which agent? ").count(), 2, "{ended:?}");
    let text = fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    assert!(text.contains("name = \"codex\""), "{text}");
}

#[rstest]
#[case::nothing(false, false, "local")]
#[case::engine(true, false, "docker")]
#[case::cloud(false, true, "daytona")]
#[case::both(true, true, "docker")]
fn a_sandbox_that_isolates_is_preselected_before_local(
    #[case] engine: bool,
    #[case] cloud: bool,
    #[case] preselected: &str,
) {
    let script = need!(skip::program("script"));
    let place = project();
    let address = if engine {
        fake_engine::answering(place.path())
    } else {
        NO_ENGINE.to_owned()
    };
    let mut command = place.on_terminal(&script, "actions\\n\\n", &["init"]);
    command.env("DOCKER_HOST", address);
    if cloud {
        command.env("DAYTONA_API_KEY", KEY);
    }
    let ended = finish(&mut command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let question = format!("Which sandbox? [{preselected}]");
    assert!(ended.stdout.contains(&question), "{question}: {ended:?}");
    let text = fs::read_to_string(place.repo().join("ralph.toml")).unwrap();
    assert!(text.contains(&format!("type = \"{preselected}\"")), "{text}");
}
