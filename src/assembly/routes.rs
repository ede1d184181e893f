//! Which service answers the calls that ralph makes itself, for each model profile.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::Config;
use crate::model::{
    CallTimeouts, DIRECT_SERVICES, DirectService, EndpointError, ListPrice, Model, ModelEndpoint,
    OpenAiCompatible, Profile, RoutedModel, Script, ScriptedModel, UnroutedModel,
};
use crate::secret::Secret;

use super::agents::{agent_of_profile, settings_of};
use super::{AssemblyError, ErrorTopic};

/// Where the calls of a profile go.
pub(crate) enum ProfileRoute {
    /// An address of the configuration: LiteLLM, or another endpoint with the OpenAI protocol.
    Endpoint {
        /// The setting with the address.
        setting: String,
        url: String,
        variable: String,
        key: Option<Secret>,
    },
    /// The service that the name of the model begins with.
    Direct {
        service: &'static DirectService,
        url: String,
        /// The variable with the key; `None` if the service needs none.
        variable: Option<String>,
        key: Option<Secret>,
    },
    /// No service is known for the model.
    Unknown { model: String },
}

/// Why the calls of a profile cannot be made.
pub(crate) struct MissingRoute {
    pub(crate) why: String,
    pub(crate) next_step: String,
}

impl ProfileRoute {
    /// The route of a profile: its own `base_url`, else `model_endpoint.base_url`, else the service of its model.
    pub(crate) fn new(config: &Config, profile: &Profile) -> Self {
        let settings = settings_of(config, &profile.name);
        let own_variable = settings.and_then(|model| model.api_key_env.clone());
        let of_profile = settings.and_then(|model| model.base_url.clone());
        let shared = &config.settings.model_endpoint;
        let configured = of_profile
            .map(|url| (format!("models.{}.base_url", profile.name), url))
            .or_else(|| Some(("model_endpoint.base_url".to_owned(), shared.base_url.clone()?)));
        if let Some((setting, url)) = configured {
            let variable = own_variable.unwrap_or_else(|| shared.api_key_env.clone());
            let key = config.credential(&variable);
            return Self::Endpoint {
                setting,
                url,
                variable,
                key,
            };
        }
        let Some((service, _)) = DirectService::for_model(&profile.litellm_model) else {
            return Self::Unknown {
                model: profile.litellm_model.clone(),
            };
        };
        let variable = own_variable.or_else(|| service.key_variable.map(str::to_owned));
        let url = config.credential(service.url_variable);
        Self::Direct {
            service,
            url: url.map_or(service.base_url.to_owned(), |url| url.expose().to_owned()),
            key: variable.as_ref().and_then(|variable| config.credential(variable)),
            variable,
        }
    }

    /// What is missing for calls; `None` if they can be made.
    pub(crate) fn missing(&self) -> Option<MissingRoute> {
        match self {
            Self::Direct {
                service,
                variable: Some(variable),
                key: None,
                ..
            } => Some(MissingRoute {
                why: format!("`{variable}` is not set, the key of {}", service.name),
                next_step: format!(
                    "set `{variable}` in `.env` or in the environment, or use a profile that has its key (`ralph models` lists them); \
                     for LiteLLM set model_endpoint.base_url and `LITELLM_API_KEY` instead"
                ),
            }),
            Self::Unknown { model } => Some(MissingRoute {
                why: format!("no service is known for the model `{model}`"),
                next_step: format!(
                    "set model_endpoint.base_url to a LiteLLM that serves it, such as \"http://127.0.0.1:4000\", or use a \
                     model of {}",
                    DirectService::prefixes()
                ),
            }),
            Self::Endpoint { .. } | Self::Direct { .. } => None,
        }
    }

    /// The list price of a model on this route; `None` if it is unknown, or the endpoint's own.
    pub(crate) fn list_price(&self, model: &str) -> Option<ListPrice> {
        match self {
            Self::Direct { service, url, .. } => service.list_price(model, url),
            Self::Endpoint { .. } | Self::Unknown { .. } => None,
        }
    }

    /// Whether the endpoint may report what a call costs.
    pub(crate) fn reports_cost(&self) -> bool {
        match self {
            Self::Endpoint { .. } => true,
            Self::Direct { service, .. } => service.reports_cost,
            Self::Unknown { .. } => false,
        }
    }

    /// The client of this route; `None` if there is no service.
    pub(crate) fn client(&self) -> Result<Option<OpenAiCompatible>, AssemblyError> {
        let timeouts = CallTimeouts::default();
        let created = match self {
            Self::Endpoint { url, key, .. } => {
                let endpoint = ModelEndpoint::parse(url);
                endpoint.and_then(|endpoint| OpenAiCompatible::new(endpoint, key.clone(), timeouts))
            }
            Self::Direct {
                service, url, key, ..
            } => OpenAiCompatible::direct(service, url, key.clone(), timeouts),
            Self::Unknown { .. } => return Ok(None),
        };
        created.map(Some).map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &EndpointError) -> AssemblyError {
        let (address, key) = match self {
            Self::Endpoint {
                setting, variable, ..
            } => (setting.as_str(), Some(variable)),
            Self::Direct {
                service, variable, ..
            } => (service.url_variable, variable.as_ref()),
            Self::Unknown { model } => (model.as_str(), None),
        };
        match (error, key) {
            (EndpointError::Key(_), Some(variable)) => AssemblyError::usage(format!("{variable}: {error}"))
                .with_topic(ErrorTopic::Model)
                .with_hint("a key has no line breaks and no characters beyond ASCII: set it again"),
            _ => AssemblyError::usage(format!("{address}: {error}")).with_topic(ErrorTopic::Model),
        }
    }

    fn model(&self) -> Result<Arc<dyn Model>, AssemblyError> {
        let missing = self.missing();
        let client = match missing {
            None => self.client()?,
            Some(_) => None,
        };
        Ok(match client {
            Some(client) => Arc::new(client),
            None => Arc::new(UnroutedModel {
                reason: missing.map_or_else(String::new, |missing| {
                    format!("{}; {}", missing.why, missing.next_step)
                }),
            }),
        })
    }
}

/// The model of a run: a script, or the services and endpoints of its profiles.
pub(super) fn create_model(config: &Config, script: Option<&str>) -> Result<Arc<dyn Model>, AssemblyError> {
    if let Some(script) = script {
        let script = Script::parse(script)?;
        return Ok(Arc::new(ScriptedModel::new(script)));
    }
    let mut by_profile = BTreeMap::new();
    for (name, profile) in &config.profiles {
        by_profile.insert(name.clone(), ProfileRoute::new(config, profile).model()?);
    }
    let unknown = UnroutedModel {
        reason: "it is not in the configuration".to_owned(),
    };
    Ok(Arc::new(RoutedModel::new(Arc::new(unknown), by_profile)))
}

/// The profiles of the configuration, with the list prices of their models.
pub(crate) fn priced_profiles(config: &Config) -> BTreeMap<String, Profile> {
    let priced = |(name, profile): (&String, &Profile)| {
        let list_price = ProfileRoute::new(config, profile).list_price(&profile.litellm_model);
        let profile = profile.clone();
        (
            name.clone(),
            Profile {
                list_price,
                ..profile
            },
        )
    };
    config.profiles.iter().map(priced).collect()
}

/// What is missing for the calls of a profile; `None` if they can be made.
pub(crate) fn missing(config: &Config, profile: &str) -> Option<MissingRoute> {
    missing_for(config, profile, "ralph run", "")
}

/// Like [`missing`], for a run that exists: `ralph resume` continues it then.
pub(super) fn missing_in_run(config: &Config, profile: &str) -> Option<MissingRoute> {
    missing_for(config, profile, "ralph resume", ", then `ralph resume`")
}

fn missing_for(config: &Config, profile: &str, command: &str, end: &str) -> Option<MissingRoute> {
    let route = ProfileRoute::new(config, config.profiles.get(profile)?);
    let missing = route.missing()?;
    let next_step = match (&route, other_key(config)) {
        (
            ProfileRoute::Direct {
                variable: Some(variable),
                ..
            },
            Some((other, model)),
        ) => format!(
            "set `{variable}` in `.env`{end}; or use the service of `{other}`, which is set: \
             `{command} --set models.{profile}.litellm_model={model}`"
        ),
        _ => format!("{}{end}", missing.next_step),
    };
    Some(MissingRoute { next_step, ..missing })
}

/// The variable of a service whose key is set, and a model of that service.
fn other_key(config: &Config) -> Option<(&'static str, &'static str)> {
    DIRECT_SERVICES.iter().find_map(|service| {
        let variable = service.key_variable?;
        config.credential(variable)?;
        Some((variable, service.starter_models?[0]))
    })
}

/// The profile that diagnoses: the configured one or, if that cannot be called, the default one.
pub(super) fn doctor_profile(config: &Config) -> &str {
    let (doctor, default) = (&config.settings.doctor_profile, &config.settings.default_profile);
    let replaced = missing(config, doctor).is_some() && missing(config, default).is_none();
    if replaced { default } else { doctor }
}

/// What is missing for the built-in agent to work with a profile. A program calls its model itself.
pub(crate) fn uncallable(config: &Config, profile: &str) -> Option<MissingRoute> {
    missing(config, profile).filter(|_| agent_of_profile(config, profile).is_built_in)
}

/// Whether the agent can go on with the fallback profile.
pub(super) fn can_fall_back(config: &Config) -> bool {
    uncallable(config, &config.settings.fallback_profile).is_none()
}

/// Says that a run goes without its fallback or its doctor, because a key is missing.
pub(super) fn notice(config: &Config) -> Option<String> {
    let settings = &config.settings;
    let default = &settings.default_profile;
    if !agent_of_profile(config, default).is_built_in || missing(config, default).is_some() {
        return None;
    }
    let skips_fallback = !can_fall_back(config);
    let replaces_doctor = doctor_profile(config) != settings.doctor_profile;
    let (profile, effect) = match (skips_fallback, replaces_doctor) {
        (false, false) => return None,
        (true, false) => (
            &settings.fallback_profile,
            "a stuck run goes on without a fallback".to_owned(),
        ),
        (false, true) => (
            &settings.doctor_profile,
            format!("`{default}` diagnoses a stuck run"),
        ),
        (true, true) => (
            &settings.fallback_profile,
            format!("a stuck run goes on without a fallback, and `{default}` diagnoses it"),
        ),
    };
    let why = missing(config, profile)?.why;
    Some(format!(
        "the profile `{profile}` cannot be used ({why}): {effect}"
    ))
}
