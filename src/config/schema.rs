//! The JSON schema of the configuration file, from the types in `settings` and the comments of `templates/default.toml`.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use serde_json::Value as Json;

use super::DEFAULTS;
use super::key::KeyPath;
use super::settings::ConfigSettings;
use super::stack::LayerStack;

/// The schema of `ralph.toml` and the user file, for editors and `ralph config schema`.
#[must_use]
pub fn schema() -> Json {
    let mut schema = known().clone();
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), "ralph.toml".into());
        root.insert(
            "description".to_owned(),
            "The configuration of ralph. Every key is optional.".into(),
        );
    }
    let defaults = LayerStack::with_defaults().entries;
    for (key, doc) in docs() {
        let Some(property) = property(&mut schema, &key).and_then(Json::as_object_mut) else {
            continue;
        };
        property.insert("description".to_owned(), doc.into());
        if let Some(setting) = defaults.get(&key).filter(|_| !key.is_profile()) {
            property.insert("default".to_owned(), setting.value.to_json());
        }
    }
    schema
}

/// The schema without documentation, from which the known keys come.
pub(super) fn known() -> &'static Json {
    static KNOWN: LazyLock<Json> = LazyLock::new(plain);
    &KNOWN
}

/// The comment above each key of `templates/default.toml`.
pub(super) fn docs() -> Vec<(KeyPath, String)> {
    let (mut section, mut comment, mut docs) = (String::new(), Vec::new(), Vec::new());
    for line in DEFAULTS.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            comment.push(words);
            continue;
        }
        let doc = std::mem::take(&mut comment).join(" ");
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !doc.is_empty()) {
            let name = name.trim_start_matches('#');
            docs.push((KeyPath::parse(&format!("{section}{name}")), doc));
        }
    }
    docs
}

fn plain() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings
        .with_transform(make_keys_optional)
        .into_generator()
        .into_root_schema_for::<ConfigSettings>();
    schema.to_value()
}

/// Every key of a file is optional, because other layers may set it. TOML has no null.
fn make_keys_optional(schema: &mut schemars::Schema) {
    schema.remove("required");
    if let Some(Json::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            schema.insert("type".to_owned(), kind);
        }
    }
    if schema.get("default").is_some_and(Json::is_null) {
        schema.remove("default");
    }
    transform_subschemas(&mut make_keys_optional, schema);
}

fn property<'a>(schema: &'a mut Json, key: &KeyPath) -> Option<&'a mut Json> {
    key.segments().iter().try_fold(schema, |schema, name| {
        let named = schema["properties"].get(name).is_some();
        if named {
            schema.get_mut("properties")?.get_mut(name)
        } else {
            schema.get_mut("additionalProperties")
        }
    })
}
