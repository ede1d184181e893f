//! Named sets of hosts.

use std::fmt;

use super::packages::{PackageClient, PackageConfig};
use super::rule::{PolicyRule, PolicyRuleError};

/// What the clients of each service need, and nothing more.
const SERVICES: [Preset; 3] = [
    // The API of Anthropic, and the telemetry of its clients.
    Preset::Service {
        name: "anthropic",
        hosts: &["api.anthropic.com", "statsig.anthropic.com", "sentry.io"],
    },
    // The API and the login of OpenAI.
    Preset::Service {
        name: "openai",
        hosts: &["api.openai.com", "auth.openai.com", "chatgpt.com"],
    },
    // Git, API and downloads.
    Preset::Service {
        name: "github",
        hosts: &[
            "github.com",
            "api.github.com",
            "codeload.github.com",
            "raw.githubusercontent.com",
            "objects.githubusercontent.com",
            "release-assets.githubusercontent.com",
        ],
    },
];

/// A named set of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// The hosts of a service.
    Service {
        /// The name of the preset.
        name: &'static str,
        /// The hosts.
        hosts: &'static [&'static str],
    },
    /// The hosts that a package client downloads from, by its own configuration.
    Packages(&'static PackageClient),
}

impl Preset {
    /// Every preset.
    pub fn all() -> impl Iterator<Item = Self> {
        let clients = PackageClient::ALL.into_iter().map(Self::Packages);
        SERVICES.into_iter().chain(clients)
    }

    /// The preset with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|preset| preset.to_string() == name)
    }

    /// The rules of the preset. Those of a package client depend on its configuration.
    pub fn rules(self, config: &PackageConfig<'_>) -> Result<Vec<PolicyRule>, PolicyRuleError> {
        let place = format!("preset `{self}`");
        let rule = |host: &str, place: &str| Ok(PolicyRule::parse(host)?.at(place));
        match self {
            Self::Service { hosts, .. } => hosts.iter().map(|host| rule(host, &place)).collect(),
            Self::Packages(client) => {
                let hosts = client.hosts(config).into_iter();
                hosts
                    .map(|found| rule(&found.host, &format!("{}, {place}", found.source)))
                    .collect()
            }
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service { name, .. } => f.write_str(name),
            Self::Packages(client) => write!(f, "packages:{}", client.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_name_and_rules() {
        for preset in Preset::all() {
            assert_eq!(Preset::parse(&preset.to_string()), Some(preset));
            assert!(
                !preset.rules(&PackageConfig::EMPTY).unwrap().is_empty(),
                "{preset}"
            );
        }
        assert_eq!(Preset::parse("npm"), None);
    }

    #[test]
    fn the_rules_of_a_preset_name_it_as_their_place() {
        let preset = Preset::parse("anthropic").unwrap();
        let lines: Vec<String> = preset
            .rules(&PackageConfig::EMPTY)
            .unwrap()
            .iter()
            .map(|rule| rule.line.to_string())
            .collect();
        assert_eq!(
            lines,
            [
                "`api.anthropic.com` (preset `anthropic`)",
                "`statsig.anthropic.com` (preset `anthropic`)",
                "`sentry.io` (preset `anthropic`)",
            ]
        );
    }
}
