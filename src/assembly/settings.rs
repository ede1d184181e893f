//! From the configuration to the settings of the runner.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{AssemblyError, ErrorTopic, agents, routes};
use crate::config::{self, Config, LadderRung};
use crate::runner::{Budget, CiRules, DoctorRules, DoneRules, OverlapRule, Profiles, RunSettings};
use crate::scm::{CommitIdentity, DEFAULT_BUNDLE_LIMIT};
use crate::state::Rung;

/// How long to wait for an unreachable model that gives no time to retry.
const MODEL_WAIT: Duration = Duration::from_secs(30);

/// The settings of a run. With a `script`, every profile can be called.
pub(crate) fn settings(config: &Config, script: Option<&str>) -> Result<RunSettings, AssemblyError> {
    let from = &config.settings;
    let identity = CommitIdentity::new(&from.git.user_name, &from.git.user_email)
        .map_err(|error| AssemblyError::usage(error.to_string()).with_topic(ErrorTopic::Configuration))?;
    let uncallable = config
        .profiles
        .keys()
        .filter(|name| script.is_none() && routes::uncallable(config, name).is_some());
    Ok(RunSettings {
        budget: budget(config),
        diff_line_threshold: u64::from(from.gutter.diff_line_threshold.get()),
        ladder: from.gutter.ladder.iter().map(|rung| to_rung(*rung)).collect(),
        doctor: DoctorRules {
            every_iterations: from.doctor.every_iterations.map(Into::into),
            apply_diagnosis: from.doctor.apply == config::DoctorApply::Auto,
        },
        done: done_rules(&from.done),
        profiles: Profiles {
            default: from.default_profile.clone(),
            fallback: Some(from.fallback_profile.clone())
                .filter(|profile| agents::differs_from_default(config, profile))
                .filter(|_| script.is_some() || routes::can_fall_back(config)),
            doctor: Some(match script {
                Some(_) => from.doctor_profile.clone(),
                None => routes::doctor_profile(config).to_owned(),
            }),
            all: routes::priced_profiles(config),
            uncallable: uncallable.cloned().collect(),
        },
        identity,
        prompt_bytes: from.prompt.max_bytes.get() as usize,
        iteration_timeout: from.sandbox.resources.timeout,
        idle_timeout: from.timers.idle,
        agent_env: BTreeMap::new(),
        max_hand_back_bytes: DEFAULT_BUNDLE_LIMIT,
        commit_leftovers: from.git.commit_leftovers,
        setup_command: from.task.setup_command.clone(),
        setup_cache: None,
        state_remote: None,
        allowable_hosts: from.sandbox.network.may_be_allowed.clone().into(),
        pull_request_interval: Duration::from_secs(u64::from(from.forge.update_minutes.get()) * 60),
        on_overlap: overlap_rule(from.forge.on_overlap),
        commit_statuses: from.forge.statuses,
        model_wait: MODEL_WAIT,
    })
}

/// The upper bounds of a run.
pub(super) fn budget(config: &Config) -> Budget {
    let from = &config.settings.budget;
    Budget {
        max_iterations: from.max_iterations.get(),
        max_wall_time: from.max_wall_time,
        max_cost: Some(from.max_cost),
        max_tokens: from.max_tokens_total.map(Into::into),
        max_consecutive_gutter: from.max_consecutive_gutter.get() as usize,
        max_rate_limit_wait: from.max_rate_limit_wait,
    }
}

/// What has to hold before a run is done.
fn done_rules(from: &config::DoneSettings) -> DoneRules {
    let seconds = |count: u32| Duration::from_secs(count.into());
    DoneRules {
        repeat: from.repeat.get(),
        pause_when_weakened: from.weakened_tests == config::OnWeakenedTests::Pause,
        ci: from.wait_for_ci.then(|| CiRules {
            limit: seconds(from.ci_minutes.get()) * 60,
            settle: seconds(from.ci_settle_seconds.get()),
            poll: seconds(from.ci_poll_seconds.get()),
        }),
    }
}

fn overlap_rule(from: config::OnOverlap) -> OverlapRule {
    match from {
        config::OnOverlap::Ignore => OverlapRule::Ignore,
        config::OnOverlap::Warn => OverlapRule::Warn,
        config::OnOverlap::Pause => OverlapRule::Pause,
    }
}

fn to_rung(rung: LadderRung) -> Rung {
    match rung {
        LadderRung::Rotate => Rung::Rotate,
        LadderRung::Fallback => Rung::Fallback,
        LadderRung::Doctor => Rung::Doctor,
        LadderRung::Person => Rung::Person,
    }
}
