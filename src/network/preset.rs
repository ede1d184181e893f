//! Named sets of hosts.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::packages::{PackageClient, PackageConfig};
use super::rule::{PolicyRule, PolicyRuleError};

/// The fixed lists: what the clients of each service need, and nothing more.
const LISTS: [(Preset, &[&str]); 3] = [
    (
        Preset::Anthropic,
        &["api.anthropic.com", "statsig.anthropic.com", "sentry.io"],
    ),
    (
        Preset::Openai,
        &["api.openai.com", "auth.openai.com", "chatgpt.com"],
    ),
    (
        Preset::Github,
        &[
            "github.com",
            "api.github.com",
            "codeload.github.com",
            "raw.githubusercontent.com",
            "objects.githubusercontent.com",
            "release-assets.githubusercontent.com",
        ],
    ),
];

/// A named set of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// The API of Anthropic, and the telemetry of its clients.
    Anthropic,
    /// The API and the login of OpenAI.
    Openai,
    /// GitHub: git, API and downloads.
    Github,
    /// The hosts that a package client downloads from, by its own configuration.
    Packages(PackageClient),
}

impl Preset {
    /// Every preset.
    pub fn all() -> impl Iterator<Item = Self> {
        let lists = LISTS.into_iter().map(|(preset, _)| preset);
        lists.chain(PackageClient::ALL.into_iter().map(Self::Packages))
    }

    /// The rules of the preset. Those of a package client depend on its configuration.
    pub fn rules(self, config: &PackageConfig<'_>) -> Result<Vec<PolicyRule>, PolicyRuleError> {
        let place = format!("preset `{self}`");
        match self {
            Self::Packages(packages) => packages
                .hosts(config)
                .into_iter()
                .map(|found| Ok(PolicyRule::parse(&found.host)?.at(&format!("{}, {place}", found.source))))
                .collect(),
            Self::Anthropic | Self::Openai | Self::Github => LISTS
                .iter()
                .filter(|(preset, _)| *preset == self)
                .flat_map(|(_, hosts)| hosts.iter())
                .map(|host| Ok(PolicyRule::parse(host)?.at(&place)))
                .collect(),
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anthropic => f.write_str("anthropic"),
            Self::Openai => f.write_str("openai"),
            Self::Github => f.write_str("github"),
            Self::Packages(packages) => write!(f, "packages:{packages}"),
        }
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        Self::all()
            .find(|preset| preset.to_string() == text)
            .ok_or_else(|| UnknownPreset(text.to_owned()))
    }
}

/// A name that is not a preset.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown preset `{0}`")]
pub struct UnknownPreset(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_name_and_rules() {
        for preset in Preset::all() {
            assert_eq!(preset.to_string().parse(), Ok(preset));
            assert!(
                !preset.rules(&PackageConfig::EMPTY).unwrap().is_empty(),
                "{preset}"
            );
        }
        assert!("npm".parse::<Preset>().is_err());
    }

    #[test]
    fn the_rules_of_a_preset_name_it_as_their_place() {
        let lines: Vec<String> = Preset::Anthropic
            .rules(&PackageConfig::EMPTY)
            .unwrap()
            .iter()
            .map(|rule| rule.line().to_string())
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
