//! The configuration of a LiteLLM that serves the models of the profiles.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::model::DirectService;

use super::agents::settings_of;

/// The configuration as YAML. Keys are read from the variables that the profiles name; a profile with an address of its own is
/// left out.
pub(crate) fn litellm_config(config: &Config) -> String {
    let mut seen = BTreeSet::new();
    let mut text = "model_list:\n".to_owned();
    for profile in config.profiles.values() {
        let settings = settings_of(config, &profile.name);
        let has_own_address = settings.is_some_and(|model| model.base_url.is_some());
        if has_own_address || !seen.insert(&profile.litellm_model) {
            continue;
        }
        let of_service =
            || DirectService::for_model(&profile.litellm_model).and_then(|(service, _)| service.key_variable);
        // Behind an endpoint it is the key of that endpoint.
        let is_direct = config.settings.model_endpoint.base_url.is_none();
        let variable = settings
            .filter(|_| is_direct)
            .and_then(|model| model.api_key_env.as_deref());
        text.push_str(&entry(&profile.litellm_model, variable.or_else(of_service)));
    }
    text
}

/// A model. LiteLLM knows by itself which variable has the key of a service that ralph does not know.
fn entry(model: &str, key_variable: Option<&str>) -> String {
    // A JSON string is one of YAML too.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let name = quoted(model);
    let key = key_variable.map_or(String::new(), |variable| {
        format!("      api_key: {}\n", quoted(&format!("os.environ/{variable}")))
    });
    format!("  - model_name: {name}\n    litellm_params:\n      model: {name}\n{key}")
}
