//! The model profiles, as command line and API show them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::config::Config;
use crate::model::Profile;

use super::agents::agent_of_profile;
use super::configuration::{self, GivenSettings, project_dir};
use super::routes::{ProfileRoute, priced_profiles};
use super::{AssemblyContext, AssemblyError};

/// A model profile: the service or endpoint that answers, whether its key is found, and the price.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ModelOverview {
    /// The name of the profile.
    pub profile: String,
    /// The model.
    pub model: String,
    /// The agent that uses it.
    pub agent: &'static str,
    /// The service, or the setting with the address; `None` if there is neither.
    pub route: Option<String>,
    /// The address.
    pub address: Option<String>,
    /// The variable that holds the key; `None` if no key is needed.
    pub key_variable: Option<String>,
    /// Whether that variable is set.
    pub key_found: bool,
    /// The price of input.
    pub input_usd_per_million: Option<f64>,
    /// The price of output.
    pub output_usd_per_million: Option<f64>,
    /// Where the price comes from.
    pub price_from: PriceOrigin,
    /// What is missing for calls.
    pub missing: Option<String>,
}

/// Where a price comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PriceOrigin {
    /// The configuration.
    Configuration,
    /// The price table that ships with ralph.
    List,
    /// It runs on this host and costs nothing.
    Local,
    /// The endpoint reports it with each call.
    Endpoint,
    /// No place has it.
    Unknown,
}

impl ModelOverview {
    /// The profiles of the current directory.
    pub(crate) fn all(context: &AssemblyContext) -> Result<Vec<Self>, AssemblyError> {
        let project = project_dir(context.surroundings.dir());
        let config = configuration::load_quietly(context, project, &GivenSettings::default())?;
        Ok(Self::of_config(&config))
    }

    /// The profiles of this configuration.
    pub(crate) fn of_config(config: &Config) -> Vec<Self> {
        let profiles = priced_profiles(config);
        profiles
            .values()
            .map(|profile| Self::new(config, profile))
            .collect()
    }

    fn new(config: &Config, profile: &Profile) -> Self {
        let route = ProfileRoute::new(config, profile);
        let (name, address, key_variable, key_found) = match &route {
            ProfileRoute::Endpoint {
                setting,
                url,
                variable,
                key,
            } => (
                Some(setting.clone()),
                Some(url.clone()),
                Some(variable.clone()),
                key.is_some(),
            ),
            ProfileRoute::Direct {
                service,
                url,
                variable,
                key,
            } => (
                Some(service.name.to_owned()),
                Some(url.clone()),
                variable.clone(),
                key.is_some(),
            ),
            ProfileRoute::Unknown { .. } => (None, None, None, false),
        };
        let listed = profile.list_price.map(|price| price.per_million());
        let price = profile.price.or(listed);
        Self {
            profile: profile.name.clone(),
            model: profile.litellm_model.clone(),
            agent: agent_of_profile(config, &profile.name).name,
            route: name,
            address,
            input_usd_per_million: price.map(|price| price.input_per_million.dollars()),
            output_usd_per_million: price.map(|price| price.output_per_million.dollars()),
            price_from: price_origin(profile, &route, listed.is_some(), key_variable.is_some()),
            key_variable,
            key_found,
            missing: route.missing().map(|missing| missing.why),
        }
    }
}

fn price_origin(profile: &Profile, route: &ProfileRoute, is_listed: bool, needs_key: bool) -> PriceOrigin {
    if profile.price.is_some() {
        PriceOrigin::Configuration
    } else if is_listed && needs_key {
        PriceOrigin::List
    } else if is_listed {
        PriceOrigin::Local
    } else if route.reports_cost() {
        PriceOrigin::Endpoint
    } else {
        PriceOrigin::Unknown
    }
}
