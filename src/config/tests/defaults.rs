//! The defaults, and the file that documents them.

use std::time::Duration;

use super::*;
use crate::model::Profile;
use crate::network::PolicyMode;
use crate::runner;
use crate::sandbox::DefaultLimits;
use crate::task::starter;
use crate::usage::Usd;

#[test]
fn the_defaults_are_those_of_the_design() {
    let config = Project::new(&[]).load();
    let ConfigSettings {
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
    assert_eq!(sandbox.network.policy, PolicyMode::Allowlist);
    let allowed: Vec<&str> = sandbox
        .network
        .allowed
        .iter()
        .map(|rule| rule.line.text.as_str())
        .collect();
    assert_eq!(allowed, ["github.com", "crates.io", "api.anthropic.com"]);
    assert_eq!(config.resources().memory_bytes, Some(8 << 30));
    assert_eq!(config.resources().cpu_millis, Some(4000));
    let (memory, processors) = (true, true);
    assert_eq!(config.default_limits(), DefaultLimits { memory, processors });
    assert_eq!(
        (agent.kind, agent.model.as_deref()),
        ("claude".parse().unwrap(), None)
    );
    assert_eq!(budget.max_iterations.get(), 30);
    assert_eq!(budget.max_wall_time, Duration::from_secs(120 * 60));
    assert_eq!(Some(budget.max_cost), Usd::from_dollars(10.0));
    assert_eq!(budget.max_tokens_total, None);
    assert_eq!(budget.max_consecutive_gutter.get(), 3);
    assert_eq!(budget.max_rate_limit_wait, Duration::from_secs(360 * 60));
}

#[test]
fn a_library_user_gets_the_same_defaults() {
    let from = Project::new(&[]).load().settings;
    let own = runner::RunSettings::new(Profile::new("name", "model"));
    assert_eq!(
        own.budget,
        runner::Budget {
            max_iterations: from.budget.max_iterations.get(),
            max_wall_time: from.budget.max_wall_time,
            max_cost: Some(from.budget.max_cost),
            max_tokens: None,
            max_consecutive_gutter: from.budget.max_consecutive_gutter.get() as usize,
            max_rate_limit_wait: from.budget.max_rate_limit_wait,
        }
    );
    assert_eq!(own.ladder.len(), from.gutter.ladder.len());
    assert_eq!(
        own.diff_line_threshold,
        u64::from(from.gutter.diff_line_threshold.get())
    );
    assert_eq!(own.prompt_bytes, from.prompt.max_bytes.get() as usize);
    assert_eq!(own.done.repeat, from.done.repeat.get());
    assert!(!own.done.pause_when_weakened);
    assert_eq!(from.done.weakened_tests, OnWeakenedTests::Flag);
    assert!(!own.commit_leftovers && !from.git.commit_leftovers);
    assert_eq!(own.iteration_timeout, from.sandbox.resources.timeout);
    assert_eq!(own.idle_timeout, from.timers.idle);
    assert_eq!(
        own.identity.to_string(),
        format!("{} <{}>", from.git.user_name, from.git.user_email)
    );
}

#[test]
fn the_starter_file_names_what_this_version_has() {
    for (text, provider, policy) in [
        (starter::CONFIG, SandboxType::Docker, PolicyMode::Allowlist),
        (starter::LOCAL_CONFIG, SandboxType::Local, PolicyMode::AllowAll),
    ] {
        let config = Project::new(&[("ralph.toml", text)]).load();
        assert_eq!(config.provider(), provider);
        assert_eq!(config.settings.sandbox.network.policy, policy);
        assert_eq!(config.settings.agent.kind.name, "actions");
    }
}

#[test]
fn the_other_defaults_are_those_of_the_issue() {
    let config = Project::new(&[]).load();
    let settings = &config.settings;
    assert_eq!(settings.model_endpoint.base_url, None);
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
    let documented: Vec<String> = schema::docs()
        .into_iter()
        .map(|(key, _)| {
            key.to_string()
                .replace("default-cheap", "NAME")
                .replace("NPM_TOKEN", "NAME")
        })
        .collect();
    for key in known::keys() {
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
    // Settings about the host are only for the user's own file.
    let config = Project::new(&[("user.toml", &uncommented.join("\n"))]).load();
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
            .starts_with("The name of the model at LiteLLM")
    );
    assert_eq!(model["default"], serde_json::Value::Null);
}
