//! `config/models.yaml`: `profiles: NAME: {litellm_model, max_output_tokens, temperature, tags}`. The profiles become
//! `[models.NAME]` of the project layer.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use super::document::ConfigDocument;
use super::error::{ConfigFinding, ConfigProblem};
use super::key::KeyPath;
use super::layer::SettingOrigin;
use super::value::{ConfigValue, Setting, TableMember};

/// The one key of the file.
const PROFILES: &str = "profiles";

/// Reads the file. Its content is returned as the table `models`, whose keys the caller checks.
pub(super) fn read(document: ConfigDocument<'_>) -> (Vec<TableMember>, Vec<ConfigFinding>) {
    let options = serde_saphyr::Options {
        with_snippet: false,
        strict_booleans: true,
        ..serde_saphyr::Options::default()
    };
    match serde_saphyr::from_str_with_options::<Spanned<Yaml>>(document.text, options) {
        Ok(root) => profiles(document, root),
        Err(error) => (Vec::new(), vec![broken(document, &error)]),
    }
}

fn broken(document: ConfigDocument<'_>, error: &serde_saphyr::Error) -> ConfigFinding {
    let origin = error.location().map_or_else(
        || document.origin_of_line(1, 1),
        |location| origin(document, &location),
    );
    // The message ends with the position.
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    ConfigFinding::syntax(origin.place, message)
}

fn profiles(document: ConfigDocument<'_>, root: Spanned<Yaml>) -> (Vec<TableMember>, Vec<ConfigFinding>) {
    let setting = setting(document, root);
    let members = match setting.value {
        ConfigValue::Table(members) => members,
        ConfigValue::Foreign(NOTHING) => return (Vec::new(), Vec::new()),
        other => {
            let message = format!(
                "found {}, expected a mapping with the key `{PROFILES}`",
                other.describe()
            );
            return (
                Vec::new(),
                vec![ConfigFinding::syntax(setting.origin.place, message)],
            );
        }
    };
    let (profiles, others): (Vec<TableMember>, Vec<TableMember>) =
        members.into_iter().partition(|member| member.key == PROFILES);
    let models = profiles.into_iter().map(|member| TableMember {
        key: "models".to_owned(),
        ..member
    });
    let unknown = others.into_iter().map(|member| ConfigFinding {
        place: member.key_origin.place,
        problem: ConfigProblem::UnknownKey {
            key: KeyPath::top(&member.key),
            suggestion: Some(PROFILES.to_owned()),
        },
    });
    (models.collect(), unknown.collect())
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
        let number = i64::try_from(value);
        Ok(Yaml::Scalar(number.map_or(
            ConfigValue::Foreign("a number beyond 64 bits"),
            ConfigValue::Integer,
        )))
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
