//! Every mistake is reported, with its place and what was expected.

use std::fs;

use rstest::rstest;

use super::*;

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
#[case::list("[gutter]\nladder = 'rotate'", &["ralph.toml:2:10: `gutter.ladder`: found the text `rotate`, expected a list such as [\"a\", \"b\"]"])]
#[case::list_item("[gutter]\nladder = [\n  'rotate',\n  'jump',\n]", &["ralph.toml:4:3: `gutter.ladder`: found the text `jump`, expected one of `rotate`, `fallback`, `doctor`, `person`"])]
#[case::date("[git]\nuser_name = 2020-01-01", &["ralph.toml:2:13: `git.user_name`: found a date or time, expected a text that is not empty"])]
#[case::password("[model_endpoint]\nbase_url = 'http://me:hunter2@host'", &["ralph.toml:2:12: `model_endpoint.base_url`: found an address with a user name, expected an address such as \"http://127.0.0.1:4000\", without a user name or password"])]
#[case::size("[sandbox.resources]\nmemory = 8", &["ralph.toml:2:10: `sandbox.resources.memory`: found the number `8`, expected a size above 0 with its unit, such as \"512m\" or \"8g\""])]
#[case::nameless_profile("[models.'']\nlitellm_model = 'x'", &["ralph.toml:2:17: `models.\"\"`: the profile has no name"])]
#[case::inspect("[sandbox.network]\ninspect = ['GET a.example/x']", &["ralph.toml:2:12: `sandbox.network.inspect`: found the text `GET a.example/x`, expected the name of a host such as \"github.com\", \"*.github.com\" or \"registry.example.org:8443\", without a scheme, methods or a path"])]
#[case::host("[sandbox.network]\nallowed = ['https://github.com']", &["ralph.toml:2:12: `sandbox.network.allowed`: found the text `https://github.com`, expected the name of a host such as \"github.com\", \"*.github.com\" or \"db.example.org:5432\", without a scheme, perhaps with methods and a path as in \"GET docs.example.org/api/*\""])]
#[case::preset("[sandbox.network]\npresets = ['github', 'npm']", &["ralph.toml:2:22: `sandbox.network.presets`: found the text `npm`, expected one of `anthropic`, `openai`, `github`, `packages:npm`, `packages:pypi`, `packages:cargo`, `packages:apt`, `packages:nix`, `packages:go`"])]
#[case::address_range("[sandbox.network]\ndangerously_allow_addresses = ['0.0.0.0/0']", &["ralph.toml:2:32: `sandbox.network.dangerously_allow_addresses`: found the text `0.0.0.0/0`, expected an address or a range such as \"10.1.2.3\" or \"10.1.0.0/16\", at most a /8 (or a /16 of IPv6)"])]
#[case::no_profile("doctor_profile = 'x'", &["ralph.toml:1:18: `doctor_profile`: there is no profile `x`; expected one of `default-cheap`, `strong-doctor`"])]
#[case::no_model("[models.mine]\ntags = []", &["ralph.toml:2:8: `models.mine`: the profile has no `litellm_model`"])]
#[case::half_a_price("[models.mine]\nlitellm_model = 'x'\ninput_usd_per_million = 1", &["ralph.toml:3:25: `models.mine`: a price needs both `input_usd_per_million` and `output_usd_per_million`"])]
#[case::credential_of_another_service("[sandbox]\nenv_passthrough = ['NPM_TOKEN']", &["ralph.toml:2:19: `sandbox.env_passthrough`: `NPM_TOKEN` is a credential, and no sandbox ever holds one; take it out of the list"])]
#[case::credential_of_a_cloud("[sandbox]\nenv_passthrough = ['AWS_SECRET_ACCESS_KEY']", &["ralph.toml:2:19: `sandbox.env_passthrough`: `AWS_SECRET_ACCESS_KEY` is a credential, and no sandbox ever holds one; take it out of the list"])]
#[case::credential_into_the_sandbox("[sandbox]\nenv_passthrough = ['PATH', 'GITHUB_PAT']", &["ralph.toml:2:19: `sandbox.env_passthrough`: `GITHUB_PAT` is a credential, and no sandbox ever holds one; take it out of the list"])]
#[case::variable_of_certificates("[sandbox.env]\nPIP_CERT = 'x'", &["ralph.toml:2:12: `sandbox.env.PIP_CERT`: ralph sets this variable itself; choose another name"])]
#[case::reserved_variable("[sandbox.env]\nhttps_proxy = 'x'", &["ralph.toml:2:15: `sandbox.env.https_proxy`: ralph sets this variable itself; choose another name"])]
#[case::bad_variable("[sandbox.env]\n'A-B' = 'x'", &["ralph.toml:2:9: `sandbox.env.A-B`: the name of a variable has only letters, digits and `_`"])]
#[case::secret_without_hosts("[sandbox.secrets.KEY]\nfrom = 'OWN_KEY'", &["ralph.toml:2:8: `sandbox.secrets.KEY`: a secret needs either `hosts`, the names of the hosts that it is sent to, or `dangerously_pass = true`"])]
#[case::secret_passed_and_kept("[sandbox.secrets.KEY]\nhosts = ['a.example']\ndangerously_pass = true", &["ralph.toml:3:20: `sandbox.secrets.KEY`: a secret needs either `hosts`, the names of the hosts that it is sent to, or `dangerously_pass = true`"])]
#[case::plain_and_secret("[sandbox.env]\nKEY = 'x'\n[sandbox.secrets.KEY]\nhosts = ['a.example']", &["ralph.toml:4:9: `sandbox.secrets.KEY`: `sandbox.env` has the same variable; remove one of them"])]
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
#[case::unknown(
    "{\n  \"memory\": 8}",
    ".agent-loop/config.json:2:13: unknown key `memory`; did you mean `memory_gb`?"
)]
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
    ".agent-loop/config.json:3:2: `sandbox.network.allowed`: found null, expected the name of a host such as \"github.com\", \"*.github.com\" or \"db.example.org:5432\", without a scheme, perhaps with methods and a path as in \"GET docs.example.org/api/*\""
)]
#[case::twice(
    "{\"cpu\": 1, \"cpu\": 2}",
    ".agent-loop/config.json:1:19: duplicate key `cpu`"
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
    "config/models.yaml:3:5: unknown key `models.a.litellm`; did you mean `models.a.litellm_model`?"
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
            "ralph_task.md:4:17: `task.min_checkboxes`: found the text `two`, expected a whole number of at least 1",
            "--set: unknown key `budgt.max_iterations`; did you mean `budget.max_iterations`?",
        ]
    );
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

#[test]
fn a_mistake_in_dotenv_is_reported_with_its_place() {
    let dotenv = "foo bar\nRALPH_BUDGET__MAX_ITERATION=4\nRALPH_RALPH_FORGE__TYPE=local\n";
    assert_eq!(
        Project::new(&[(".env", dotenv)]).errors(),
        [
            ".env:1:1: expected `NAME=value`",
            ".env:2:1: RALPH_BUDGET__MAX_ITERATION: unknown variable; did you mean `RALPH_BUDGET__MAX_ITERATIONS`?",
            ".env:3:1: RALPH_RALPH_FORGE__TYPE: unknown variable",
        ]
    );
}
