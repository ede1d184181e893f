//! The settings of a history.

use std::time::Duration;

use ralph::model::Profile;
use ralph::network::{Policy, PolicyRule};
use ralph::runner::{Budget, CiRules, DoctorRules, DoneRules, Profiles, RunSettings};
use ralph::scm::CommitIdentity;
use ralph::state::Rung;
use ralph::usage::{Price, Usd};
use serde::Deserialize;

/// The settings of the run. The default is that of a run without any configuration, with smaller budgets.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SettingsShape {
    max_iterations: u32,
    max_wall_time_ms: u64,
    max_cost_usd: Option<f64>,
    max_tokens: Option<u64>,
    max_consecutive_gutter: usize,
    max_rate_limit_wait_ms: u64,
    diff_line_threshold: u64,
    ladder: Vec<Rung>,
    doctor_every: Option<u32>,
    doctor_apply: Apply,
    done_repeat: u32,
    pause_when_weakened: bool,
    fallback: Option<String>,
    doctor: Option<String>,
    /// The price of every profile; unknown when `null`.
    usd_per_million_tokens: Option<f64>,
    max_output_tokens: u32,
    iteration_timeout_ms: u64,
    model_wait_ms: u64,
    max_hand_back_bytes: u64,
    commit_leftovers: bool,
    /// The checks of CI that fail, at each question; `null` does not wait for CI.
    pub ci: Option<Vec<Vec<String>>>,
    /// The rules of an allowlist, which `local` does not enforce; `null` allows everything.
    allowed: Option<Vec<String>>,
    /// How long a command that has ended may be kept waiting by a child that holds its streams.
    pub completion_grace_ms: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Apply {
    Auto,
    Wait,
}

impl Default for SettingsShape {
    fn default() -> Self {
        Self {
            max_iterations: 12,
            max_wall_time_ms: 600_000,
            max_cost_usd: Some(10.0),
            max_tokens: Some(10_000_000),
            max_consecutive_gutter: 3,
            max_rate_limit_wait_ms: 10_000,
            diff_line_threshold: 1,
            ladder: vec![Rung::Rotate, Rung::Fallback, Rung::Doctor, Rung::Person],
            doctor_every: None,
            doctor_apply: Apply::Auto,
            done_repeat: 1,
            pause_when_weakened: false,
            fallback: Some("strong".to_owned()),
            doctor: Some("doctor".to_owned()),
            usd_per_million_tokens: Some(1.0),
            max_output_tokens: 1000,
            iteration_timeout_ms: 30_000,
            model_wait_ms: 10,
            max_hand_back_bytes: ralph::scm::DEFAULT_BUNDLE_LIMIT,
            commit_leftovers: false,
            ci: None,
            allowed: None,
            completion_grace_ms: 100,
        }
    }
}

impl SettingsShape {
    /// The same as the runner takes them.
    pub fn settings(&self) -> RunSettings {
        let dollars = |amount: f64| Usd::from_dollars(amount).expect("an amount of money");
        RunSettings {
            pull_request_interval: Duration::from_secs(600),
            on_overlap: ralph::runner::OverlapRule::Warn,
            commit_statuses: false,
            budget: Budget {
                max_iterations: self.max_iterations,
                max_wall_time: Duration::from_millis(self.max_wall_time_ms),
                max_cost: self.max_cost_usd.map(dollars),
                max_tokens: self.max_tokens,
                max_consecutive_gutter: self.max_consecutive_gutter,
                max_rate_limit_wait: Duration::from_millis(self.max_rate_limit_wait_ms),
            },
            diff_line_threshold: self.diff_line_threshold,
            ladder: self.ladder.clone(),
            doctor: DoctorRules {
                every_iterations: self.doctor_every,
                apply_diagnosis: matches!(self.doctor_apply, Apply::Auto),
            },
            done: DoneRules {
                repeat: self.done_repeat,
                pause_when_weakened: self.pause_when_weakened,
                ci: self.ci.as_ref().map(|_| CiRules {
                    limit: Duration::from_secs(60),
                    settle: Duration::ZERO,
                    poll: Duration::from_millis(10),
                }),
            },
            profiles: Profiles {
                default: "cheap".to_owned(),
                fallback: self.fallback.clone(),
                doctor: self.doctor.clone(),
                all: ["cheap", "strong", "doctor"]
                    .map(|name| (name.to_owned(), self.profile(name)))
                    .into(),
                uncallable: std::collections::BTreeSet::new(),
            },
            identity: CommitIdentity::new("ralph", "ralph@localhost").unwrap(),
            prompt_bytes: 100_000,
            iteration_timeout: Duration::from_millis(self.iteration_timeout_ms),
            idle_timeout: Duration::from_secs(30),
            agent_env: std::collections::BTreeMap::new(),
            max_hand_back_bytes: self.max_hand_back_bytes,
            commit_leftovers: self.commit_leftovers,
            setup_command: None,
            setup_cache: None,
            state_remote: None,
            allowable_hosts: ralph::network::AllowableHosts::PublicNames,
            model_wait: Duration::from_millis(self.model_wait_ms),
        }
    }

    /// The network policy of the sandbox.
    pub fn policy(&self) -> Policy {
        let Some(allowed) = &self.allowed else {
            return Policy::allow_all();
        };
        Policy::allowlist(allowed.iter().map(|line| PolicyRule::parse(line).unwrap()))
    }

    fn profile(&self, name: &str) -> Profile {
        let price = self.usd_per_million_tokens.map(|dollars| {
            let amount = Usd::from_dollars(dollars).expect("an amount of money");
            Price {
                input_per_million: amount,
                output_per_million: amount,
            }
        });
        Profile {
            name: name.to_owned(),
            litellm_model: format!("scripted/{name}"),
            max_output_tokens: self.max_output_tokens,
            temperature: None,
            price,
            list_price: None,
            tags: Vec::new(),
        }
    }
}
