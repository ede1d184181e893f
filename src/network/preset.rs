//! Names for sets of hosts.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::packages::{Clients, Packages};
use super::rule::{Rule, RuleError};

/// The fixed lists. Each holds what its clients need to work, and nothing to be safe.
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

/// A name for a set of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// The API of Anthropic, and where its clients report to.
    Anthropic,
    /// The API of OpenAI, and where its clients log in.
    Openai,
    /// GitHub: git, API and downloads.
    Github,
    /// Where a package client downloads from, by its own configuration.
    Packages(Packages),
}

impl Preset {
    /// Every preset.
    pub fn all() -> impl Iterator<Item = Self> {
        let lists = LISTS.into_iter().map(|(preset, _)| preset);
        lists.chain(Packages::ALL.into_iter().map(Self::Packages))
    }

    /// The lines it stands for. A package client is asked by the files in `clients`.
    pub fn rules(self, clients: &Clients<'_>) -> Result<Vec<Rule>, RuleError> {
        let place = format!("preset `{self}`");
        match self {
            Self::Packages(packages) => packages
                .hosts(clients)
                .into_iter()
                .map(|found| Ok(Rule::parse(&found.host)?.at(&format!("{}, {place}", found.source))))
                .collect(),
            Self::Anthropic | Self::Openai | Self::Github => LISTS
                .iter()
                .filter(|(preset, _)| *preset == self)
                .flat_map(|(_, hosts)| hosts.iter())
                .map(|host| Ok(Rule::parse(host)?.at(&place)))
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

/// A name that is no preset's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no preset `{0}`")]
pub struct UnknownPreset(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_name_and_lines() {
        for preset in Preset::all() {
            assert_eq!(preset.to_string().parse(), Ok(preset));
            assert!(!preset.rules(&Clients::NONE).unwrap().is_empty(), "{preset}");
        }
        assert!("npm".parse::<Preset>().is_err());
    }

    #[test]
    fn a_preset_says_where_its_lines_come_from() {
        let lines: Vec<String> = Preset::Anthropic
            .rules(&Clients::NONE)
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
