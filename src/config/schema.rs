//! The JSON schema of the configuration file, from the types in `settings` and the comments of `templates/default.toml`.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use serde_json::Value as Json;

use super::DEFAULTS;
use super::key::KeyPath;
use super::known::KnownKeys;
use super::reference;
use super::settings::ConfigSettings;
use super::stack::LayerStack;

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
    let defaults = LayerStack::with_defaults().entries;
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

/// Every key that exists.
pub(super) fn known() -> &'static KnownKeys {
    static KNOWN: LazyLock<KnownKeys> = LazyLock::new(|| KnownKeys::from_schema(&plain()));
    &KNOWN
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
