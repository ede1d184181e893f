//! What a run is told by its caller. The command line fills it from the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::Profile;
use crate::scm::Identity;
use crate::state::Rung;

use super::budget::Budget;

/// What a run is told by its caller.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// What it may spend.
    pub budget: Budget,
    /// Fewer changed lines than this count as none.
    pub diff_line_threshold: u64,
    /// What is done about gutters, in order.
    pub ladder: Vec<Rung>,
    /// The doctor's rules.
    pub doctor: DoctorRules,
    /// The models.
    pub profiles: Profiles,
    /// Who commits.
    pub identity: Identity,
    /// The size of a prompt, about.
    pub prompt_bytes: usize,
    /// How long one iteration may take.
    pub iteration_timeout: Duration,
    /// How long an agent's command may print nothing.
    pub idle_timeout: Duration,
    /// Variables that an agent's commands see. What is confidential to others, a phantom, may be among them.
    pub agent_env: BTreeMap<String, String>,
    /// How long to wait when a model is out of reach and does not say until when; doubled each time.
    pub model_wait: Duration,
}

impl RunSettings {
    /// The settings of a run with one model, everything else as the configuration has it when nobody sets it. There is
    /// no fallback and no doctor: those rungs of the ladder are left out until [`RunSettings::profiles`] names them.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        const MINUTE: u64 = 60;
        Self {
            budget: Budget::default(),
            diff_line_threshold: 1,
            ladder: vec![Rung::Rotate, Rung::Fallback, Rung::Doctor, Rung::Person],
            doctor: DoctorRules {
                every_iterations: None,
                apply: DoctorApply::Auto,
            },
            profiles: Profiles {
                default: profile.name.clone(),
                fallback: None,
                doctor: None,
                all: BTreeMap::from([(profile.name.clone(), profile)]),
            },
            identity: Identity::default(),
            prompt_bytes: 200_000,
            iteration_timeout: Duration::from_secs(60 * MINUTE),
            idle_timeout: Duration::from_secs(10 * MINUTE),
            agent_env: BTreeMap::new(),
            model_wait: Duration::from_secs(30),
        }
    }
}

/// The models of a run.
#[derive(Clone, Debug)]
pub struct Profiles {
    /// The name of the profile it starts with.
    pub default: String,
    /// The name of the profile it falls back to.
    pub fallback: Option<String>,
    /// The name of the profile that diagnoses.
    pub doctor: Option<String>,
    /// All profiles by name.
    pub all: BTreeMap<String, Profile>,
}

impl Profiles {
    /// The profile of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Profile> {
        self.all.get(name)
    }
}

/// When the doctor is asked, and what is done with the diagnosis.
#[derive(Clone, Copy, Debug)]
pub struct DoctorRules {
    /// Also every so many iterations.
    pub every_iterations: Option<u32>,
    /// What is done with a diagnosis.
    pub apply: DoctorApply,
}

/// What is done with a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorApply {
    /// Its signs go into the guardrails and its model is used.
    Auto,
    /// It waits for a person.
    Wait,
}
