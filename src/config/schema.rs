//! The JSON schema of the file format, from the types in `settings` and the words of `templates/default.toml`.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use serde_json::Value as Json;

use super::DEFAULTS;
use super::key::KeyPath;
use super::known::Known;
use super::reference;
use super::settings::Settings;
use super::stack::Stack;

/// The schema of `ralph.toml` and the user file, for editors and `ralph config schema`.
#[must_use]
pub fn schema() -> Json {
    let mut schema = plain();
    if let Some(root) = schema.as_object_mut() {
        root.insert("title".to_owned(), "ralph.toml".into());
        root.insert(
            "description".to_owned(),
            "The configuration of ralph. Every key is optional.".into(),
        );
    }
    let defaults = Stack::with_defaults().entries;
    for (key, doc) in reference::docs(DEFAULTS) {
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

/// Every key there is.
pub(super) fn known() -> &'static Known {
    static KNOWN: LazyLock<Known> = LazyLock::new(|| Known::from_schema(&plain()));
    &KNOWN
}

fn plain() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings
        .with_transform(make_keys_optional)
        .into_generator()
        .into_root_schema_for::<Settings>();
    schema.to_value()
}

/// In a file every key may be left out; the defaults and the other layers fill it in. TOML has no null.
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
