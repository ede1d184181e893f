//! The keys that exist, from the JSON schema of the types in `settings`, and suggestions for unknown ones.

use serde_json::Value as Json;

use super::error::ConfigFinding;
use super::key::KeyPath;
use super::layer::{SettingOrigin, SettingPlace};
use super::schema;
use super::toml_file;
use super::value::{ConfigValue, Setting, SettingMap, TableMember};

/// The placeholder of a name that the user chooses.
pub(super) const ANY_NAME: &str = "NAME";

/// Every key, in order.
pub(super) fn keys() -> Vec<KeyPath> {
    let mut keys = Vec::new();
    collect_keys(schema::known(), &KeyPath::ROOT, &mut keys);
    keys.sort();
    keys
}

fn collect_keys(known: &Json, key: &KeyPath, keys: &mut Vec<KeyPath>) {
    if !is_table(known) {
        keys.push(key.clone());
    } else if let Some(properties) = known["properties"].as_object() {
        for (name, known) in properties {
            collect_keys(known, &key.child(name), keys);
        }
    } else {
        collect_keys(&known["additionalProperties"], &key.child(ANY_NAME), keys);
    }
}

fn is_table(known: &Json) -> bool {
    known["properties"].is_object() || known["additionalProperties"].is_object()
}

/// The schema of a name in a table.
fn child<'a>(known: &'a Json, name: &str) -> Option<&'a Json> {
    let any = || Some(&known["additionalProperties"]).filter(|any| any.is_object());
    known["properties"].get(name).or_else(any)
}

fn find(path: &[String]) -> Option<&'static Json> {
    path.iter()
        .try_fold(schema::known(), |known, name| child(known, name))
}

/// Parses plain text as the value of a key; `None` if the key does not exist. Text of another type stays text, and is
/// refused when it gets its type.
pub(super) fn parse(key: &KeyPath, text: &str, origin: SettingOrigin) -> Option<Setting> {
    let known = find(key.segments()).filter(|known| !is_table(known))?;
    let is = |name: &str| match &known["type"] {
        Json::Array(names) => names.iter().any(|kind| kind == name),
        kind => kind == name,
    };
    let parsed = if is("boolean") {
        text.parse().ok().map(ConfigValue::Bool)
    } else if is("integer") {
        text.parse().ok().map(ConfigValue::Integer)
    } else if is("array") {
        list(text, &origin).map(ConfigValue::List)
    } else if is("number") && !is("string") {
        text.parse().ok().map(ConfigValue::Float)
    } else {
        None
    };
    let value = parsed.unwrap_or_else(|| ConfigValue::Text(text.to_owned()));
    Some(Setting { value, origin })
}

/// Parses `a,b`, `[a,b]` (a shell has removed the quotes) or, with quotes, a list of TOML.
fn list(text: &str, origin: &SettingOrigin) -> Option<Vec<Setting>> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if inner.is_some_and(|inner| inner.contains(['"', '\''])) {
        return toml_file::list(text, origin);
    }
    let items = inner.unwrap_or(text).split(',').map(str::trim);
    let item = |item: &str| Setting {
        value: ConfigValue::Text(item.to_owned()),
        origin: origin.clone(),
    };
    Some(items.filter(|item| !item.is_empty()).map(item).collect())
}

/// Reports an unknown key, with a suggestion: a similar key in the same section, the same name elsewhere, or a similar path.
pub(super) fn unknown(place: SettingPlace, key: &KeyPath) -> ConfigFinding {
    let namesake = |known: &KeyPath| known.segments().last() == key.segments().last();
    let suggestion = neighbour(key)
        .or_else(|| keys().into_iter().find(namesake).map(|known| known.to_string()))
        .or_else(|| closest(&key.to_string(), keys().iter().map(ToString::to_string)));
    ConfigFinding::unknown_key(place, key, suggestion)
}

fn neighbour(key: &KeyPath) -> Option<String> {
    let (name, parents) = key.segments().split_last()?;
    let properties = find(parents)?["properties"].as_object()?;
    let name = closest(name, properties.keys().cloned())?;
    Some(KeyPath::from_segments(parents).child(&name).to_string())
}

/// Flattens the tables of a file. An unknown table is reported once.
pub(super) fn flatten(members: Vec<TableMember>, findings: &mut Vec<ConfigFinding>) -> SettingMap {
    let mut entries = SettingMap::new();
    let mut tables = vec![(schema::known(), KeyPath::ROOT, members)];
    while let Some((known, path, members)) = tables.pop() {
        for member in members {
            let key = path.child(&member.key);
            let Setting { value, origin } = member.setting;
            match (child(known, &member.key), value) {
                (None, _) => findings.push(unknown(member.key_origin.place, &key)),
                (Some(known), ConfigValue::Table(inner)) if is_table(known) => {
                    tables.push((known, key, inner));
                }
                (Some(known), value) if is_table(known) => {
                    findings.push(ConfigFinding::invalid_value(
                        origin.place,
                        &key,
                        &value,
                        "a table",
                    ));
                }
                (Some(_), value) => {
                    entries.insert(key, Setting { value, origin });
                }
            }
        }
    }
    entries
}

/// The candidate most similar to a mistyped name.
pub(super) fn closest(name: &str, candidates: impl IntoIterator<Item = String>) -> Option<String> {
    candidates
        .into_iter()
        .filter(|candidate| candidate != name)
        .map(|candidate| (strsim::jaro_winkler(name, &candidate), candidate))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// Low enough for `memory` to find `memory_gb`.
const MIN_SIMILARITY: f64 = 0.85;
