//! The configuration as its callers use it: real files in, values or messages out.

use std::fs;
use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::network::Policy;
use crate::secret::Redactor;
use crate::usage::Usd;

/// A project directory with these files.
struct Project {
    dir: TempDir,
    inputs: Inputs,
}

impl Project {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let inputs = Inputs {
            user_file: Some(dir.path().join("user.toml")),
            project_dir: dir.path().to_owned(),
            ..Inputs::default()
        };
        Self { dir, inputs }
    }

    fn env(mut self, variables: &[(&str, &str)]) -> Self {
        let pairs = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        self.inputs.env.extend(pairs);
        self
    }

    fn task(mut self, key: &str, value: &str) -> Self {
        let place = Place::File(FilePlace {
            path: "ralph_task.md".into(),
            line: 3,
            column: 1,
        });
        self.inputs.task.push(given(key, value, place));
        self
    }

    fn flag(mut self, flag: &str, key: &str, value: &str) -> Self {
        self.inputs
            .flags
            .push(given(key, value, Place::Flag(flag.to_owned())));
        self
    }

    fn load(&self) -> Config {
        load(&self.inputs).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The messages, without the directory.
    fn errors(&self) -> Vec<String> {
        let Err(error) = load(&self.inputs) else {
            panic!("it was accepted");
        };
        let prefix = format!("{}/", self.dir.path().display());
        error
            .to_string()
            .replace(&prefix, "")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn source(&self, key: &str) -> String {
        let config = self.load();
        let origin = config.origin(key).unwrap();
        let prefix = format!("{}/", self.dir.path().display());
        format!(
            "{} {}",
            origin.layer,
            origin.place.to_string().replace(&prefix, "")
        )
    }
}

fn given(key: &str, value: &str, place: Place) -> Override {
    Override {
        key: key.to_owned(),
        value: value.to_owned(),
        place,
    }
}

#[test]
fn the_defaults_are_those_of_the_design() {
    let config = Project::new(&[]).load();
    let Settings {
        sandbox,
        agent,
        budget,
        ..
    } = &config.settings;
    assert_eq!(sandbox.kind, SandboxType::Docker);
    assert!(sandbox.enabled && sandbox.reuse_container && sandbox.use_local_image);
    assert_eq!(sandbox.image, None);
    assert_eq!(sandbox.network.on_unenforceable, OnUnenforceable::Error);
    assert_eq!(sandbox.resources.timeout, Duration::from_secs(3600));
    let allowed = ["github.com", "crates.io", "api.anthropic.com"];
    assert_eq!(
        config.network_policy(),
        Policy::Allowlist(allowed.map(str::to_owned).to_vec())
    );
    assert_eq!(config.resources().memory_bytes, Some(8 << 30));
    assert_eq!(config.resources().cpu_millis, Some(4000));
    assert_eq!((agent.name, agent.model.as_deref()), (AgentName::Claude, None));
    assert_eq!(budget.max_iterations.get(), 30);
    assert_eq!(budget.max_wall_time, Duration::from_secs(120 * 60));
    assert_eq!(Some(budget.max_cost), Usd::from_dollars(10.0));
    assert_eq!(budget.max_tokens_total, None);
    assert_eq!(budget.max_consecutive_gutter.get(), 3);
    assert_eq!(budget.max_rate_limit_wait, Duration::from_secs(360 * 60));
}

#[test]
fn the_other_defaults_are_those_of_the_issue() {
    let config = Project::new(&[]).load();
    let settings = &config.settings;
    assert_eq!(settings.model_endpoint.base_url, "http://127.0.0.1:4000");
    assert_eq!(settings.gutter.diff_line_threshold.get(), 1);
    let ladder = [
        LadderRung::Rotate,
        LadderRung::Fallback,
        LadderRung::Doctor,
        LadderRung::Person,
    ];
    assert_eq!(settings.gutter.ladder, ladder);
    assert_eq!(settings.doctor.every_iterations, None);
    assert_eq!(settings.doctor.apply, DoctorApply::Auto);
    let git = &settings.git;
    assert_eq!(
        (
            git.user_name.as_str(),
            git.user_email.as_str(),
            git.branch_prefix.as_str()
        ),
        ("ralph", "ralph@localhost", "ralph")
    );
    assert_eq!(settings.forge.kind, ForgeType::Local);
    assert_eq!(settings.task.min_checkboxes.get(), 2);
    assert_eq!(settings.prompt.max_bytes.get(), 200_000);
    assert_eq!(settings.timers.completion_grace, Duration::from_secs(5));
    assert_eq!(settings.timers.idle, Duration::from_secs(600));
    let profile = &config.profiles[&settings.default_profile];
    assert_eq!(
        (profile.name.as_str(), profile.litellm_model.as_str()),
        ("default-cheap", "zai/glm-4.7")
    );
    assert_eq!(
        (profile.max_output_tokens, profile.temperature),
        (2048, Some(0.2))
    );
    assert_eq!(settings.fallback_profile, "strong-doctor");
    assert_eq!(settings.doctor_profile, "strong-doctor");
}

#[test]
fn the_default_file_documents_every_key() {
    let documented: Vec<String> = reference::docs(DEFAULTS)
        .into_iter()
        .map(|(key, _)| key.to_string().replace("default-cheap", "NAME"))
        .collect();
    for key in schema::known().keys() {
        assert!(documented.contains(&key.to_string()), "`{key}` is not documented");
    }
}

#[test]
fn the_examples_in_the_default_file_can_be_used() {
    let is_example = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
    let uncommented: Vec<&str> = DEFAULTS
        .lines()
        .map(|line| if is_example(line) { &line[1..] } else { line })
        .collect();
    let config = Project::new(&[("ralph.toml", &uncommented.join("\n"))]).load();
    assert_eq!(config.settings.sandbox.image.as_deref(), Some("ralph:latest"));
    assert!(config.profiles["default-cheap"].price.is_some());
    let unset: Vec<String> = config
        .rows()
        .into_iter()
        .filter(|row| row.value.is_null())
        .map(|row| row.key)
        .collect();
    assert_eq!(unset, [""; 0]);
}

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
    check(task(), 3, "task ralph_task.md:3:1");
    let files = || Project::new(&[user, project, dotenv]).task(key, "3");
    check(files(), 4, "env .env:1:1: RALPH_BUDGET__MAX_ITERATIONS");
    check(files().env(&variable), 5, "env RALPH_BUDGET__MAX_ITERATIONS");
    check(
        files().env(&variable).flag("--max-iterations", key, "6"),
        6,
        "flag --max-iterations",
    );
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
    assert_eq!(
        config.network_policy(),
        Policy::Allowlist(vec!["a.example".to_owned()])
    );
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
    assert_eq!(error.hint(), Some("check the path given to `--config`"));
}

#[rstest]
#[case::bad_toml("[budget\nx = 1", &["ralph.toml:1:8: unclosed table, expected `]`"])]
#[case::unknown_key("[budget]\nmax_iteration = 5", &["ralph.toml:2:1: unknown key `budget.max_iteration`; did you mean `budget.max_iterations`?"])]
#[case::unknown_section("[sandbx]\ntype = 'local'\nenabled = true", &["ralph.toml:1:2: unknown key `sandbx`; did you mean `sandbox`?"])]
#[case::empty_unknown_section("[xyzzy]", &["ralph.toml:1:2: unknown key `xyzzy`"])]
#[case::misplaced("[budget]\ndefault_profile = 'x'", &["ralph.toml:2:1: unknown key `budget.default_profile`; did you mean `default_profile`?"])]
#[case::wrong_type("[budget]\nmax_iterations = 'many'", &["ralph.toml:2:18: `budget.max_iterations`: found the text `many`, expected a whole number of at least 1 (a budget is always finite; 0 does not mean unlimited)"])]
#[case::not_a_table("budget = 3", &["ralph.toml:1:10: `budget`: found the number `3`, expected a table"])]
#[case::a_table("[budget.max_iterations]\nx = 1", &["ralph.toml:1:1: `budget.max_iterations`: found a table, expected a whole number of at least 1 (a budget is always finite; 0 does not mean unlimited)"])]
#[case::choice("[sandbox]\ntype = 'dcoker'", &["ralph.toml:2:8: `sandbox.type`: found the text `dcoker`, expected one of `docker`, `docker-sandbox`, `tart`, `daytona`, `local`"])]
#[case::flag("[sandbox]\nenabled = 'yes'", &["ralph.toml:2:11: `sandbox.enabled`: found the text `yes`, expected `true` or `false`"])]
#[case::list("[gutter]\nladder = 'rotate'", &["ralph.toml:2:10: `gutter.ladder`: found the text `rotate`, expected a list"])]
#[case::list_item("[gutter]\nladder = [\n  'rotate',\n  'jump',\n]", &["ralph.toml:4:3: `gutter.ladder`: found the text `jump`, expected one of `rotate`, `fallback`, `doctor`, `person`"])]
#[case::date("[git]\nuser_name = 2020-01-01", &["ralph.toml:2:13: `git.user_name`: found a date or time, expected a text that is not empty"])]
#[case::host("[sandbox.network]\nallowed = ['https://github.com']", &["ralph.toml:2:12: `sandbox.network.allowed`: found the text `https://github.com`, expected the name of a host such as \"github.com\", without a scheme or a path"])]
#[case::no_profile("doctor_profile = 'x'", &["ralph.toml:1:18: `doctor_profile`: there is no profile `x`; expected one of `default-cheap`, `strong-doctor`"])]
#[case::no_model("[models.mine]\ntags = []", &["ralph.toml:2:8: `models.mine`: the profile has no `litellm_model`"])]
#[case::half_a_price("[models.mine]\nlitellm_model = 'x'\ninput_usd_per_million = 1", &["ralph.toml:3:25: `models.mine`: a price needs both `input_usd_per_million` and `output_usd_per_million`"])]
#[case::credential_into_the_sandbox("[sandbox]\nenv_passthrough = ['PATH', 'GITHUB_PAT']", &["ralph.toml:2:19: `sandbox.env_passthrough`: `GITHUB_PAT` is a credential, and no sandbox ever holds one; take it out of the list"])]
#[case::all_at_once("default_profil = 'x'\n[budget]\nmax_iterations = 0\nmax_cost_usd_estimate = true\n[forge]\ntype = 'x'", &[
    "ralph.toml:1:1: unknown key `default_profil`; did you mean `default_profile`?",
    "ralph.toml:3:18: `budget.max_iterations`: found the number `0`, expected a whole number of at least 1 (a budget is always finite; 0 does not mean unlimited)",
    "ralph.toml:4:25: `budget.max_cost_usd_estimate`: found `true`, expected a number of dollars above 0 and below 1000000000 (a budget is always finite)",
    "ralph.toml:6:8: `forge.type`: found the text `x`, expected one of `local`, `github`",
])]
fn a_mistake_in_ralph_toml_is_reported_with_its_place(#[case] text: &str, #[case] expected: &[&str]) {
    assert_eq!(Project::new(&[("ralph.toml", text)]).errors(), expected);
}

#[rstest]
fn a_budget_is_always_finite(
    #[values(
        "max_iterations",
        "max_wall_time_minutes",
        "max_cost_usd_estimate",
        "max_tokens_total",
        "max_consecutive_gutter",
        "max_rate_limit_wait_minutes"
    )]
    key: &str,
    #[values("0", "-1", "inf", "nan", "1e400", "99999999999999999999999")] value: &str,
) {
    let errors = Project::new(&[("ralph.toml", &format!("[budget]\n{key} = {value}"))]).errors();
    let message = errors.join("\n");
    assert!(
        message.starts_with("ralph.toml:2:") && message.contains(key),
        "{message}"
    );
    let by_variable = format!("RALPH_BUDGET__{}", key.to_uppercase());
    let errors = Project::new(&[]).env(&[(&by_variable, value)]).errors();
    assert!(errors[0].contains("finite"), "{errors:?}");
}

#[test]
fn a_mistake_is_found_even_where_a_higher_layer_hides_it() {
    let project = Project::new(&[
        ("user.toml", "[git]\nuser_name = 1"),
        ("ralph.toml", "[git]\nuser_name = 'me'"),
    ]);
    let expected = "user.toml:2:13: `git.user_name`: found the number `1`, expected a text that is not empty";
    assert_eq!(project.errors(), [expected]);
}

#[rstest]
#[case::not_json("{\n \"type\": }", ".agent-loop/config.json:2:10: expected value")]
#[case::not_an_object(
    "[1]",
    ".agent-loop/config.json:1:1: invalid type: sequence, expected a JSON object"
)]
#[case::unknown("{\n  \"memory\": 8}", ".agent-loop/config.json:2:13: unknown key `memory`")]
#[case::alike(
    "{\"cpus\": 8}",
    ".agent-loop/config.json:1:10: unknown key `cpus`; did you mean `cpu`?"
)]
#[case::text(
    "{\"memory_gb\": \"8\"}",
    ".agent-loop/config.json:1:15: `memory_gb`: found the text `8`, expected a number of gigabytes"
)]
#[case::range(
    "{\"memory_gb\": -1}",
    ".agent-loop/config.json:1:15: `sandbox.resources.memory`: found the text `-1g`, expected a size above 0 with its unit, such as \"512m\" or \"8g\""
)]
#[case::item(
    "{\"allowed_hosts\":\n[\"a\",\n null]}",
    ".agent-loop/config.json:3:2: `sandbox.network.allowed`: found null, expected the name of a host such as \"github.com\", without a scheme or a path"
)]
#[case::twice(
    "{\"cpu\": 1, \"cpu\": 2}",
    ".agent-loop/config.json:1:19: the key `cpu` stands here twice"
)]
fn a_mistake_in_the_agent_loop_file_is_reported_with_its_place(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(
        Project::new(&[(".agent-loop/config.json", text)]).errors(),
        [expected]
    );
}

#[rstest]
#[case::not_yaml("profiles: {a: [}", "config/models.yaml:1:16: ")]
#[case::unknown_root(
    "models:\n  a: {}",
    "config/models.yaml:1:1: unknown key `models`; did you mean `profiles`?"
)]
#[case::unknown(
    "profiles:\n  a:\n    litellm: x",
    "config/models.yaml:3:5: unknown key `models.a.litellm`"
)]
#[case::range(
    "profiles:\n  a: {litellm_model: x, temperature: 3}",
    "config/models.yaml:2:38: `models.a.temperature`: found the number `3`, expected a number from 0 to 2"
)]
#[case::twice(
    "profiles:\n  a: {litellm_model: x}\n  a: {litellm_model: y}",
    "config/models.yaml:3:3: "
)]
#[case::not_a_mapping(
    "- a",
    "config/models.yaml:1:1: found a list, expected a mapping with the key `profiles`"
)]
fn a_mistake_in_models_yaml_is_reported_with_its_place(#[case] text: &str, #[case] expected: &str) {
    let errors = Project::new(&[("config/models.yaml", text)]).errors();
    assert!(errors[0].starts_with(expected), "{errors:?}");
}

#[rstest]
#[case(
    "RALPH_BUDGET__MAX_ITERATION",
    "5",
    "RALPH_BUDGET__MAX_ITERATION: unknown variable; did you mean `RALPH_BUDGET__MAX_ITERATIONS`?"
)]
#[case(
    "RALPH_DEFAULT_PROVIDR",
    "local",
    "RALPH_DEFAULT_PROVIDR: unknown variable; did you mean `RALPH_DEFAULT_PROVIDER`?"
)]
#[case("RALPH_", "x", "RALPH_: unknown variable")]
#[case(
    "RALPH_DEFAULT_PROVIDER",
    "moon",
    "RALPH_DEFAULT_PROVIDER: `sandbox.type`: found the text `moon`, expected one of `docker`, `docker-sandbox`, `tart`, `daytona`, `local`"
)]
fn a_mistake_in_a_variable_is_reported_with_its_name(
    #[case] name: &str,
    #[case] value: &str,
    #[case] expected: &str,
) {
    assert_eq!(Project::new(&[]).env(&[(name, value)]).errors(), [expected]);
}

#[test]
fn a_mistake_in_a_flag_or_the_task_is_reported_with_its_place() {
    let project = Project::new(&[])
        .flag("--set", "budgt.max_iterations", "5")
        .task("task.min_checkboxes", "two");
    assert_eq!(
        project.errors(),
        [
            "ralph_task.md:3:1: `task.min_checkboxes`: found the text `two`, expected a whole number of at least 1",
            "--set: unknown key `budgt.max_iterations`; did you mean `budget.max_iterations`?",
        ]
    );
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
            ("UNRELATED", "x"),
        ])
        .load();
    assert_eq!(config.provider(), SandboxType::Local);
    assert_eq!(config.settings.default_profile, "strong-doctor");
    assert_eq!(config.settings.fallback_profile, "default-cheap");
    assert_eq!(
        config.settings.sandbox.network.allowed,
        ["a.example", "b.example"]
    );
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
fn credentials_come_from_the_environment_and_from_dotenv() {
    let pem = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\n-----END KEY-----";
    let dotenv =
        format!("GITHUB_APP_PRIVATE_KEY_PEM=\"{pem}\"\nZAI_API_KEY=from-file\nGITHUB_APP_ID=42\nOTHER=x\n");
    let toml = "model_endpoint.api_key_env = 'MY_KEY'\nsandbox.env_passthrough = ['LANG', 'UNSET']";
    let project = Project::new(&[(".env", &dotenv), ("ralph.toml", toml)]).env(&[
        ("ZAI_API_KEY", "from-process"),
        ("MY_KEY", "endpoint-key"),
        ("LANG", "C.UTF-8"),
    ]);
    let config = project.load();
    let credential = |name| config.credential(name).map(|secret| secret.expose().to_owned());
    assert_eq!(credential("ZAI_API_KEY").as_deref(), Some("from-process"));
    assert_eq!(credential("GITHUB_APP_PRIVATE_KEY_PEM").as_deref(), Some(pem));
    assert_eq!(credential("GITHUB_APP_ID").as_deref(), Some("42"));
    assert_eq!(config.model_api_key().unwrap().expose(), "endpoint-key");
    for name in ["OPENAI_API_KEY", "OTHER", "LANG"] {
        assert_eq!(credential(name), None, "{name}");
    }
    let passed: Vec<(String, String)> = config.passthrough().into_iter().collect();
    assert_eq!(passed, [("LANG".to_owned(), "C.UTF-8".to_owned())]);

    let redactor = Redactor::new(config.secrets());
    for secret in ["from-process", "endpoint-key", pem, "MIIEowIBAAKCAQEA"] {
        assert_eq!(redactor.redact(secret), crate::secret::REDACTED);
    }
    assert_eq!(
        redactor.redact("-----BEGIN KEY----- 42 C.UTF-8"),
        "-----BEGIN KEY----- 42 C.UTF-8"
    );
}

#[test]
fn nothing_that_is_shown_holds_a_secret() {
    let config = Project::new(&[(".env", "GITHUB_PAT=CANARY-FILE\n")])
        .env(&[
            ("ANTHROPIC_API_KEY", "CANARY-ENV"),
            ("RALPH_DB_URL", "CANARY-DB"),
            ("GITHUB_APP_ID", "42"),
        ])
        .load();
    let rows = config.rows();
    let json = serde_json::to_string(&rows).unwrap();
    let text = show::as_text(&rows);
    assert!(!format!("{json}{text}{config:?}").contains("CANARY"));
    let shown = |key: &str| rows.iter().find(|row| row.key == key).unwrap().value.clone();
    assert_eq!(shown("env.GITHUB_PAT"), "***");
    assert_eq!(shown("env.GITHUB_APP_ID"), "42");
}

#[test]
fn show_lists_every_key_with_its_layer_and_source() {
    let rows = Project::new(&[])
        .flag("--type", "sandbox.type", "local")
        .load()
        .rows();
    let text = show::as_text(&rows);
    let line = |key: &str| {
        text.lines()
            .find(|line| line.starts_with(key))
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("sandbox.type"), "sandbox.type local flag --type");
    assert_eq!(
        line("budget.max_iterations"),
        "budget.max_iterations 30 default built in"
    );
    assert_eq!(line("sandbox.image"), "sandbox.image (not set) default built in");
    assert_eq!(
        line("gutter.ladder"),
        "gutter.ladder [rotate, fallback, doctor, person] default built in"
    );
    let json = serde_json::to_value(&rows).unwrap();
    let kind = json
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["key"] == "sandbox.type")
        .unwrap();
    assert_eq!(
        *kind,
        serde_json::json!({"key": "sandbox.type", "value": "local", "layer": "flag", "source": "--type"})
    );
}

#[test]
fn the_schema_describes_every_key_and_requires_none() {
    let schema = schema();
    let text = schema.to_string();
    assert!(!text.contains("\"required\""));
    let iterations = &schema["properties"]["budget"]["properties"]["max_iterations"];
    assert_eq!(
        (
            &iterations["type"],
            &iterations["default"],
            &iterations["minimum"]
        ),
        (&"integer".into(), &30.into(), &1.into())
    );
    assert_eq!(iterations["description"], "Iterations.");
    let model = &schema["properties"]["models"]["additionalProperties"]["properties"]["litellm_model"];
    assert!(
        model["description"]
            .as_str()
            .unwrap()
            .starts_with("The model as LiteLLM")
    );
    assert_eq!(model["default"], serde_json::Value::Null);
}

#[test]
fn a_file_that_is_no_text_is_refused_with_its_place() {
    let project = Project::new(&[]);
    fs::write(project.dir.path().join("ralph.toml"), b"# x\n\xff").unwrap();
    assert_eq!(project.errors(), ["ralph.toml:2:1: the file is not UTF-8 text"]);
}

#[test]
fn a_file_without_end_is_refused() {
    let mut project = Project::new(&[]);
    project.inputs.config_file = Some("/dev/zero".into());
    assert_eq!(
        project.errors(),
        ["cannot read the configuration file `/dev/zero`"]
    );
}

/// Whatever stands in a file, loading ends with a configuration or with findings that name the file.
fn survives(name: &str, bytes: &[u8]) -> Result<(), TestCaseError> {
    let project = Project::new(&[(name, "")]);
    fs::write(project.dir.path().join(name), bytes).unwrap();
    match load(&project.inputs) {
        Ok(_) => {}
        Err(ConfigError::Read { path, .. }) => prop_assert!(false, "{}", path.display()),
        Err(ConfigError::Invalid { findings }) => {
            prop_assert!(!findings.is_empty());
            for finding in findings {
                prop_assert!(finding.to_string().contains(name), "{finding}");
            }
        }
    }
    Ok(())
}

const FILES: [&str; 4] = [
    "ralph.toml",
    ".env",
    ".agent-loop/config.json",
    "config/models.yaml",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for name in FILES {
            survives(name, &bytes)?;
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,200}") {
        for name in FILES {
            survives(name, text.as_bytes())?;
        }
    }

    #[test]
    fn anything_that_looks_like_a_file_is_read_or_refused(
        text in "(\\[[a-z.]{0,12}\\]\n|[ ]{0,4}(budget|models|profiles|type|max_iterations|litellm_model|a)[ ]?[=:{.\n][ ]?|[-0-9.]{1,6}|true|null|\"[a-z]{0,6}\"|[\\[\\]{},'\"\n&*|>-]){0,30}"
    ) {
        for name in FILES {
            survives(name, text.as_bytes())?;
        }
    }
}
