//! Who wins, and who is remembered.

use rstest::rstest;

use super::*;
use crate::sandbox::DefaultLimits;
use crate::usage::Usd;

#[test]
fn each_layer_beats_those_below_it_and_is_remembered() {
    let user = ("user.toml", "[budget]\nmax_iterations = 1\n");
    let project = ("ralph.toml", "\n[budget]\n  max_iterations = 2\n");
    let dotenv = (".env", "RALPH_BUDGET__MAX_ITERATIONS=4\n");
    let key = "budget.max_iterations";
    let variable = [("RALPH_BUDGET__MAX_ITERATIONS", "5")];
    let check = |project: Project, value: u32, source: &str| {
        assert_eq!(project.load().settings.budget.max_iterations.get(), value);
        assert_eq!(project.source(key), source);
    };
    check(Project::new(&[]), 30, "default built in");
    check(Project::new(&[user]), 1, "user user.toml:2:18");
    check(Project::new(&[user, project]), 2, "project ralph.toml:3:20");
    let task = || Project::new(&[user, project]).task(key, "3");
    check(task(), 3, "task ralph_task.md:4:17");
    let files = || Project::new(&[user, project, dotenv]).task(key, "3");
    check(files(), 4, "env .env:1:1: RALPH_BUDGET__MAX_ITERATIONS");
    check(files().env(&variable), 5, "env RALPH_BUDGET__MAX_ITERATIONS");
    check(
        files().env(&variable).flag("--max-iterations", key, "6"),
        6,
        "flag --max-iterations",
    );
}

#[rstest]
#[case::commas("ONE, TWO")]
#[case::toml(r#"["ONE", "TWO"]"#)]
#[case::toml_with_other_quotes("['ONE','TWO',]")]
#[case::quotes_that_a_shell_removed("[ONE, TWO]")]
fn a_list_is_given_with_commas_or_as_in_toml(#[case] text: &str) {
    let given = Project::new(&[]).flag("--set", "sandbox.env_passthrough", text);
    assert_eq!(given.load().settings.sandbox.env_passthrough, ["ONE", "TWO"]);
    assert_eq!(given.source("sandbox.env_passthrough"), "flag --set");
}

#[test]
fn a_list_of_tables_can_be_given_too() {
    let text = "[{source = '/srv/cache', target = '/cache'}]";
    let given = Project::new(&[]).flag("--set", "sandbox.mounts", text);
    assert_eq!(given.load().mounts()[0].target.to_str(), Some("/cache"));
    let empty = Project::new(&[]).flag("--set", "sandbox.network.allowed", "[]");
    assert!(empty.load().settings.sandbox.network.allowed.is_empty());
}

#[test]
fn a_list_that_cannot_be_read_says_how_it_is_written() {
    let given = Project::new(&[]).flag("--set", "sandbox.network.allowed", r#"["a.example", b]"#);
    let expected = r#"expected a list such as ["a", "b"]"#;
    assert!(given.errors()[0].ends_with(expected), "{:?}", given.errors());
}

#[test]
fn mounts_are_tables_of_absolute_paths() {
    let toml = "[[sandbox.mounts]]\nsource = '/srv/cache'\ntarget = '/cache'\n";
    let mounts = Project::new(&[("ralph.toml", toml)]).load().mounts();
    let pairs: Vec<_> = mounts
        .iter()
        .map(|one| (one.source.to_str(), one.target.to_str()))
        .collect();
    assert_eq!(pairs, [(Some("/srv/cache"), Some("/cache"))]);
    for wrong in [
        "source = 'cache'\ntarget = '/cache'",
        "source = '/srv'",
        "source = '/srv'\ntarget = '/'",
    ] {
        let toml = format!("[[sandbox.mounts]]\n{wrong}\n");
        let errors = Project::new(&[("ralph.toml", &toml)]).errors();
        assert!(
            errors.iter().any(|error| error.contains("sandbox.mounts")),
            "{wrong}: {errors:?}"
        );
    }
}

#[test]
fn within_the_project_ralph_toml_wins() {
    let agent_loop = r#"{"type": "tart", "base_image": "img:1", "cpu": 2, "memory_gb": 1.5, "allowed_hosts": ["a.example"]}"#;
    let models = "profiles:\n  default-cheap:\n    litellm_model: yaml/model\n    temperature: 0\n  mine: {litellm_model: x, max_output_tokens: 7, tags: [a, b]}\n";
    let toml = "sandbox.type = 'local'\n[models.default-cheap]\nlitellm_model = 'toml/model'\n";
    let project = Project::new(&[
        (".agent-loop/config.json", agent_loop),
        ("config/models.yaml", models),
        ("ralph.toml", toml),
    ]);
    let config = project.load();
    assert_eq!(config.settings.sandbox.kind, SandboxType::Local);
    assert_eq!(config.settings.sandbox.image.as_deref(), Some("img:1"));
    assert_eq!(config.resources().memory_bytes, Some(3 << 29));
    assert_eq!(config.resources().cpu_millis, Some(2000));
    assert_eq!(config.default_limits(), DefaultLimits::default());
    let [rule] = config.settings.sandbox.network.allowed.as_slice() else {
        panic!("one host")
    };
    assert_eq!(rule.line.text, "a.example");
    let cheap = &config.profiles["default-cheap"];
    assert_eq!(
        (cheap.litellm_model.as_str(), cheap.temperature),
        ("toml/model", Some(0.0))
    );
    let mine = &config.profiles["mine"];
    assert_eq!(
        (mine.max_output_tokens, mine.tags.len(), mine.price),
        (7, 2, None)
    );
    assert_eq!(
        project.source("sandbox.image"),
        "project .agent-loop/config.json:1:32"
    );
    assert_eq!(
        project.source("models.mine.max_output_tokens"),
        "project config/models.yaml:5:47"
    );
}

#[test]
fn a_named_config_file_replaces_ralph_toml_and_must_exist() {
    let files = [
        ("ralph.toml", "task.min_checkboxes = 9"),
        ("sub/other.toml", "git.user_name = 'me'"),
        ("sub/.env", "GITHUB_APP_ID=12"),
    ];
    let mut project = Project::new(&files);
    project.inputs.config_file = Some(project.dir.path().join("sub/other.toml"));
    let config = project.load();
    assert_eq!(config.settings.task.min_checkboxes.get(), 2);
    assert_eq!(config.settings.git.user_name, "me");
    assert_eq!(config.credential("GITHUB_APP_ID").unwrap().expose(), "12");

    project.inputs.config_file = Some(project.dir.path().join("missing.toml"));
    let error = load(&project.inputs).unwrap_err();
    assert!(matches!(&error, ConfigError::Read { path, .. } if path.ends_with("missing.toml")));
    assert_eq!(error.hint(), Some("check the path of the configuration file"));
}

#[test]
fn variables_set_any_key() {
    let config = Project::new(&[])
        .env(&[
            ("RALPH_DEFAULT_PROVIDER", "tart"),
            ("RALPH_SANDBOX__TYPE", "local"),
            ("RALPH_DEFAULT_MODEL_PROFILE", "strong-doctor"),
            ("RALPH_FALLBACK_MODEL_PROFILE", "default-cheap"),
            ("RALPH_SANDBOX__NETWORK__ALLOWED", "a.example, b.example"),
            ("RALPH_MODELS__DEFAULT_CHEAP__TEMPERATURE", "1"),
            ("RALPH_SANDBOX__ENABLED", "true"),
            ("RALPH_SANDBOX__RESOURCES__CPUS", "1.5"),
            ("RALPH_BUDGET__MAX_COST_USD_ESTIMATE", "2.5"),
            ("RALPH_AGENT__MODEL", ""),
            ("RALPH_HOME", "/somewhere"),
            ("RALPH_MARK", "/somewhere:1"),
            ("UNRELATED", "x"),
        ])
        .load();
    assert_eq!(config.provider(), SandboxType::Local);
    assert_eq!(config.settings.default_profile, "strong-doctor");
    assert_eq!(config.settings.fallback_profile, "default-cheap");
    let allowed = config.settings.sandbox.network.allowed.iter();
    let allowed: Vec<&str> = allowed.map(|rule| rule.line.text.as_str()).collect();
    assert_eq!(allowed, ["a.example", "b.example"]);
    assert_eq!(config.profiles["default-cheap"].temperature, Some(1.0));
    assert_eq!(config.resources().cpu_millis, Some(1500));
    assert_eq!(Some(config.settings.budget.max_cost), Usd::from_dollars(2.5));
    assert_eq!(config.settings.agent.model, None);
}

#[test]
fn no_sandbox_means_local_with_a_warning() {
    let config = Project::new(&[("ralph.toml", "sandbox.enabled = false")]).load();
    assert_eq!(config.provider(), SandboxType::Local);
    assert_eq!(config.warnings().len(), 1);
    assert_eq!(Project::new(&[]).load().warnings().len(), 0);
}

#[test]
fn the_usual_models_file_and_database_are_understood() {
    let models = "profiles:\n  default-cheap:\n    litellm_model: zai/glm-4.7\n    max_output_tokens: 2048\n    temperature: 0.2\n    \
        tags: [cheap]\n  strong-doctor:\n    litellm_model: anthropic/claude-opus-4-5\n    max_output_tokens: 4096\n  codex-like:\n    \
        litellm_model: openai/gpt-5-mini\n    tags: [code]\n";
    let dotenv = "RALPH_DB_URL=sqlite:///./ralph.db\nRALPH_DEFAULT_MODEL_PROFILE=codex-like\n";
    let project = Project::new(&[("config/models.yaml", models), (".env", dotenv)]);
    let config = project.load();
    let names: Vec<_> = config.profiles.keys().collect();
    assert_eq!(names, ["codex-like", "default-cheap", "strong-doctor"]);
    assert_eq!(config.settings.default_profile, "codex-like");
    let database = project.inputs.project_dir.join("ralph.db");
    assert_eq!(
        config.database_url().unwrap().expose(),
        format!("sqlite:///{}", database.display())
    );
    assert!(config.warnings().is_empty());
    let config = Project::new(&[])
        .env(&[("RALPH_DB_URL", "sqlite:///./ralph.db")])
        .load();
    assert_eq!(config.database_url().unwrap().expose(), "sqlite:///./ralph.db");
}
