//! The network policy of a configuration. Each rule knows its position.

use super::key::KeyPath;
use super::loaded::Config;
use super::value::ConfigValue;
use crate::network::{PackageConfig, Policy, PolicyRule};

const SECTION: &str = "sandbox.network";

impl Config {
    /// Which host names the sandbox may reach. Presets of package clients are resolved with `clients`.
    #[must_use]
    pub fn network_policy(&self, clients: &PackageConfig<'_>) -> Policy {
        let network = &self.settings.sandbox.network;
        let chosen_at = self.origin(&format!("{SECTION}.policy"));
        Policy::new(network.policy)
            .chosen_at(&chosen_at.map_or(String::new(), |origin| origin.place.to_string()))
            .allowing(self.placed("allowed", &network.allowed))
            .allowing(self.preset_rules(clients))
            .denying(self.placed("denied", &network.denied))
            .inspecting(network.inspect.iter().cloned())
    }

    fn placed(&self, key: &str, rules: &[PolicyRule]) -> Vec<PolicyRule> {
        let with_places = rules.iter().zip(self.item_places(key));
        with_places.map(|(rule, place)| rule.clone().at(&place)).collect()
    }

    /// A preset that cannot be read adds no rules: an incomplete policy allows less, not more.
    fn preset_rules(&self, clients: &PackageConfig<'_>) -> Vec<PolicyRule> {
        let presets = self.settings.sandbox.network.presets.iter();
        presets
            .zip(self.item_places("presets"))
            .flat_map(|(preset, place)| {
                let rules = preset.rules(clients).unwrap_or_default();
                rules.into_iter().map(move |rule| {
                    let within = &rule.line.place;
                    rule.clone().at(&format!("{within}, {place}"))
                })
            })
            .collect()
    }

    /// The position of each item of a list.
    fn item_places(&self, key: &str) -> Vec<String> {
        let setting = self.entries.get(&KeyPath::parse(&format!("{SECTION}.{key}")));
        match setting.map(|setting| &setting.value) {
            Some(ConfigValue::List(items)) => {
                items.iter().map(|item| item.origin.place.to_string()).collect()
            }
            _ => Vec::new(),
        }
    }
}
