//! `config/models.yaml`: `profiles: NAME: {litellm_model, max_output_tokens, temperature, tags}`. The profiles become
//! `[models.NAME]` of the project layer.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use super::document::ConfigDocument;
use super::error::ConfigFinding;
use super::key::KeyPath;
use super::known;
use super::layer::SettingOrigin;
use super::value::{ConfigValue, Setting, SettingMap, TableMember};

/// The one key of the file.
const PROFILES: &str = "profiles";

/// Reads the file. Its profiles are the table `models`.
pub(super) fn read(document: ConfigDocument<'_>, findings: &mut Vec<ConfigFinding>) -> SettingMap {
    let options = serde_saphyr::Options {
        with_snippet: false,
        strict_booleans: true,
        ..serde_saphyr::Options::default()
    };
    let root = match serde_saphyr::from_str_with_options::<Spanned<Yaml>>(document.text, options) {
        Ok(root) => setting(document, root),
        Err(error) => {
            findings.push(broken(document, &error));
            return SettingMap::new();
        }
    };
    let mut models = Vec::new();
    match root.value {
        ConfigValue::Table(members) => {
            for member in members {
                if member.key == PROFILES {
                    let key = "models".to_owned();
                    models.push(TableMember { key, ..member });
                } else {
                    let key = KeyPath::ROOT.child(&member.key);
                    let place = member.key_origin.place;
                    findings.push(ConfigFinding::unknown_key(place, &key, Some(PROFILES.to_owned())));
                }
            }
        }
        ConfigValue::Foreign(NOTHING) => {}
        other => {
            let found = other.describe();
            let message = format!("found {found}, expected a mapping with the key `{PROFILES}`");
            findings.push(ConfigFinding::new(root.origin.place, message));
        }
    }
    known::flatten(models, findings)
}

fn broken(document: ConfigDocument<'_>, error: &serde_saphyr::Error) -> ConfigFinding {
    let start = document.origin_of_line(1, 1);
    let origin = error
        .location()
        .map_or(start, |location| origin(document, &location));
    // The message ends with the position.
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    ConfigFinding::new(origin.place, message)
}

fn setting(document: ConfigDocument<'_>, node: Spanned<Yaml>) -> Setting {
    let member = |(key, node): (Spanned<String>, Spanned<Yaml>)| TableMember {
        key_origin: origin(document, &key.referenced),
        key: key.value,
        setting: setting(document, node),
    };
    Setting {
        origin: origin(document, &node.referenced),
        value: match node.value {
            Yaml::Scalar(value) => value,
            Yaml::List(items) => {
                ConfigValue::List(items.into_iter().map(|item| setting(document, item)).collect())
            }
            Yaml::Mapping(members) => ConfigValue::Table(members.into_iter().map(member).collect()),
        },
    }
}

fn origin(document: ConfigDocument<'_>, location: &Location) -> SettingOrigin {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    document.origin_of_line(number(location.line()), number(location.column()))
}

const NOTHING: &str = "nothing";

/// Any YAML.
enum Yaml {
    Scalar(ConfigValue),
    List(Vec<Spanned<Yaml>>),
    Mapping(Vec<(Spanned<String>, Spanned<Yaml>)>),
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyYaml)
    }
}

struct AnyYaml;

impl<'de> Visitor<'de> for AnyYaml {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Yaml, E> {
        Ok(Yaml::Scalar(ConfigValue::Bool(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Yaml, E> {
        Ok(Yaml::Scalar(ConfigValue::Integer(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Yaml, E> {
        let number = i64::try_from(value).map_or(ConfigValue::TOO_LARGE, ConfigValue::Integer);
        Ok(Yaml::Scalar(number))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Yaml, E> {
        Ok(Yaml::Scalar(ConfigValue::Float(value)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Yaml, E> {
        Ok(Yaml::Scalar(ConfigValue::Text(text.to_owned())))
    }

    fn visit_unit<E: Error>(self) -> Result<Yaml, E> {
        Ok(Yaml::Scalar(ConfigValue::Foreign(NOTHING)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Yaml, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Yaml::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Yaml, A::Error> {
        let mut mapping = Vec::new();
        while let Some(member) = members.next_entry()? {
            mapping.push(member);
        }
        Ok(Yaml::Mapping(mapping))
    }
}
