//! The settings of a run. The command line fills them from the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use crate::model::Profile;
use crate::network::AllowableHosts;
use crate::scm::{CommitIdentity, DEFAULT_BUNDLE_LIMIT, StateRemote};
use crate::state::Rung;

use super::budget::Budget;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// The upper bounds of the run.
    pub budget: Budget,
    /// An iteration that changes fewer lines counts as one without changes.
    pub diff_line_threshold: u64,
    /// The escalation steps, in order.
    pub ladder: Vec<Rung>,
    /// When to ask the doctor, and what to do with the diagnosis.
    pub doctor: DoctorRules,
    /// What evidence has to show before a run is done.
    pub done: DoneRules,
    /// The model profiles.
    pub profiles: Profiles,
    /// The author of commits.
    pub identity: CommitIdentity,
    /// The approximate size of a prompt, in bytes.
    pub prompt_bytes: usize,
    /// How long one iteration may take.
    pub iteration_timeout: Duration,
    /// How long an agent's command may print nothing.
    pub idle_timeout: Duration,
    /// Environment variables of the agent's commands. They may contain phantoms, never credentials.
    pub agent_env: BTreeMap<String, String>,
    /// The most bytes that one iteration hands back, packed. Uncommitted files beyond it are left out.
    pub max_hand_back_bytes: u64,
    /// Whether the runner commits what an agent leaves uncommitted. Otherwise evidence does not see it.
    pub commit_leftovers: bool,
    /// The command that gets what the others need, for tasks that name none.
    pub setup_command: Option<String>,
    /// Where results of such commands are kept for later runs. `None` means that they run each time.
    pub setup_cache: Option<PathBuf>,
    /// Where checkpoints are pushed to, so that the run can go on on another host.
    pub state_remote: Option<StateRemote>,
    /// Which hosts people may add to the network policy.
    pub allowable_hosts: AllowableHosts,
    /// A pull request that is opened before the run is done is updated at most this often.
    pub pull_request_interval: Duration,
    /// What to do when another open pull request changes the same files.
    pub on_overlap: OverlapRule,
    /// Whether each commit that is pushed gets a status at the forge.
    pub commit_statuses: bool,
    /// The first wait when a model is unreachable and names no time. It doubles each time.
    pub model_wait: Duration,
}

impl RunSettings {
    /// The defaults of the configuration, with one model. The steps `fallback` and `doctor` of the ladder are skipped until
    /// [`RunSettings::profiles`] names a profile for them.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        const MINUTE: u64 = 60;
        Self {
            budget: Budget::default(),
            diff_line_threshold: 1,
            ladder: vec![Rung::Rotate, Rung::Fallback, Rung::Doctor, Rung::Person],
            doctor: DoctorRules {
                every_iterations: None,
                apply_diagnosis: true,
            },
            done: DoneRules::default(),
            profiles: Profiles {
                default: profile.name.clone(),
                fallback: None,
                doctor: None,
                all: BTreeMap::from([(profile.name.clone(), profile)]),
                uncallable: BTreeSet::new(),
            },
            identity: CommitIdentity::default(),
            prompt_bytes: 200_000,
            iteration_timeout: Duration::from_secs(60 * MINUTE),
            idle_timeout: Duration::from_secs(10 * MINUTE),
            agent_env: BTreeMap::new(),
            max_hand_back_bytes: DEFAULT_BUNDLE_LIMIT,
            commit_leftovers: false,
            setup_command: None,
            setup_cache: None,
            state_remote: None,
            allowable_hosts: AllowableHosts::PublicNames,
            pull_request_interval: Duration::from_secs(10 * MINUTE),
            on_overlap: OverlapRule::Warn,
            commit_statuses: false,
            model_wait: Duration::from_secs(30),
        }
    }
}

/// What evidence has to show before a run is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoneRules {
    /// How often each command has to pass in a row.
    pub repeat: u32,
    /// Whether a run pauses when a check that passed on the base commit is deleted, skipped or weakened, or its runner was
    /// changed. Otherwise the pull request only says so.
    pub pause_when_weakened: bool,
    /// Whether and how the run waits for the CI of the forge.
    pub ci: Option<CiRules>,
}

/// What to do when another open pull request changes the same files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapRule {
    /// Do not look.
    Ignore,
    /// Open the pull request with a warning.
    Warn,
    /// Pause before it is opened.
    Pause,
}

/// How a run waits for the CI of the forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CiRules {
    /// How long it waits in all for one commit. Then it pauses.
    pub limit: Duration,
    /// A commit without any check after this time has no CI.
    pub settle: Duration,
    /// The time between two questions.
    pub poll: Duration,
}

impl Default for DoneRules {
    fn default() -> Self {
        Self {
            repeat: 1,
            pause_when_weakened: false,
            ci: None,
        }
    }
}

/// The model profiles of a run.
#[derive(Clone, Debug)]
pub struct Profiles {
    /// The name of the profile it starts with.
    pub default: String,
    /// The name of the profile it falls back to.
    pub fallback: Option<String>,
    /// The name of the doctor's profile.
    pub doctor: Option<String>,
    /// All profiles by name.
    pub all: BTreeMap<String, Profile>,
    /// The names of those that cannot be called, for example without a key. The doctor does not suggest them.
    pub uncallable: BTreeSet<String>,
}

impl Profiles {
    /// The profile of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Profile> {
        self.all.get(name)
    }

    /// The names of the profiles that can be called.
    pub(super) fn callable(&self) -> impl Iterator<Item = &str> {
        let names = self.all.keys().filter(|name| !self.uncallable.contains(*name));
        names.map(String::as_str)
    }
}

/// When to ask the doctor, and what to do with the diagnosis.
#[derive(Clone, Copy, Debug)]
pub struct DoctorRules {
    /// Ask after every so many iterations, besides the ladder.
    pub every_iterations: Option<u32>,
    /// Add the signs to the guardrails and use the suggested model. Otherwise the run pauses for a person.
    pub apply_diagnosis: bool,
}
