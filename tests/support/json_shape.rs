//! What the program prints with `--json`, against the schemas in `docs/reference/json`.

use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::ralph::Ended;

/// A schema, and the commands whose output it describes.
struct Shape {
    name: String,
    /// Each as words.
    commands: Vec<Vec<String>>,
    schema: Value,
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/json/v1");
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let shape = |path: &Path| {
        let file = path.file_name().unwrap().to_str().unwrap();
        let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let words = |command: &str| -> Vec<String> {
            let words = command.split(' ').map(str::to_owned);
            words.filter(|word| word != "ralph" && word != "--json").collect()
        };
        Shape {
            name: file.trim_end_matches(".schema.json").to_owned(),
            commands: schema["title"].as_str().unwrap().split(", ").map(words).collect(),
            schema,
        }
    };
    entries.map(|entry| shape(&entry.unwrap().path())).collect()
});

/// The names of all schemas.
pub fn names() -> Vec<&'static str> {
    SHAPES.iter().map(|shape| shape.name.as_str()).collect()
}

/// Why a value does not match the schema of this name; `None` if it matches.
pub fn mismatch(name: &str, value: &Value) -> Option<String> {
    let shape = SHAPES.iter().find(|shape| shape.name == name).unwrap();
    let root = &shape.schema;
    Validator { root }
        .mismatch(root, value)
        .map(|reason| format!("{reason}\n{value:#}"))
}

/// Checks what a command with these arguments printed. Returns the name of its schema; `None` if it has none, or printed nothing.
pub fn check(args: &[&str], ended: &Ended) -> Option<&'static str> {
    if !args.contains(&"--json") || ended.stdout.trim().is_empty() {
        return None;
    }
    let shape = find(args)?;
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&ended.stdout)
        .into_iter()
        .collect();
    for value in values.unwrap_or_else(|error| panic!("{args:?} printed no JSON: {error}: {ended:?}")) {
        if let Some(mismatch) = mismatch(&shape.name, &value) {
            panic!(
                "{args:?} printed what the schema `{}` does not describe: {mismatch}",
                shape.name
            );
        }
    }
    Some(&shape.name)
}

/// The schema of the command, which is the first that is named.
fn find(args: &[&str]) -> Option<&'static Shape> {
    (0..args.len()).find_map(|start| {
        let begins = |command: &Vec<String>| command.iter().eq(args[start..].iter().take(command.len()));
        SHAPES.iter().find(|shape| shape.commands.iter().any(begins))
    })
}

/// Validates by those keywords of JSON Schema that the schemas use. Others are refused.
struct Validator<'a> {
    root: &'a Value,
}

impl Validator<'_> {
    fn mismatch(&self, schema: &Value, value: &Value) -> Option<String> {
        let keywords = match schema {
            Value::Bool(true) => return None,
            Value::Object(keywords) => keywords,
            other => panic!("not a schema: {other}"),
        };
        keywords
            .iter()
            .find_map(|(keyword, wanted)| self.keyword(keyword, wanted, keywords, value))
    }

    fn keyword(
        &self,
        keyword: &str,
        wanted: &Value,
        all: &Map<String, Value>,
        value: &Value,
    ) -> Option<String> {
        let list = || wanted.as_array().unwrap();
        let fails = |holds: bool| (!holds).then(|| format!("{value} breaks `{keyword}`: {wanted}"));
        match keyword {
            "$schema" | "$id" | "title" | "description" | "default" | "format" | "$defs" => None,
            "$ref" => {
                let pointer = wanted.as_str().unwrap().strip_prefix('#').unwrap();
                self.mismatch(self.root.pointer(pointer).unwrap(), value)
            }
            "type" => fails(match wanted {
                Value::Array(kinds) => kinds.iter().any(|kind| has_type(value, kind)),
                kind => has_type(value, kind),
            }),
            "const" => fails(value == wanted),
            "enum" => fails(list().contains(value)),
            "minimum" => fails(value.as_f64()? >= wanted.as_f64()?),
            "maximum" => fails(value.as_f64()? <= wanted.as_f64()?),
            "maxItems" => fails(value.as_array()?.len() as u64 <= wanted.as_u64()?),
            "minItems" => fails(value.as_array()?.len() as u64 >= wanted.as_u64()?),
            "anyOf" => {
                let found: Vec<String> = list()
                    .iter()
                    .filter_map(|one| self.mismatch(one, value))
                    .collect();
                (found.len() == list().len()).then(|| found.join("; or "))
            }
            "oneOf" => {
                let matching = list().iter().filter(|one| self.mismatch(one, value).is_none());
                fails(matching.count() == 1)
            }
            "allOf" => list().iter().find_map(|one| self.mismatch(one, value)),
            "items" => value
                .as_array()?
                .iter()
                .find_map(|item| self.mismatch(wanted, item)),
            "required" => {
                let object = value.as_object()?;
                fails(
                    list()
                        .iter()
                        .all(|name| object.contains_key(name.as_str().unwrap())),
                )
            }
            "properties" => {
                let object = value.as_object()?;
                let mut properties = wanted.as_object().unwrap().iter();
                properties.find_map(|(name, schema)| self.mismatch(schema, object.get(name)?))
            }
            "additionalProperties" => {
                let known = |name: &str| {
                    all.get("properties")
                        .is_some_and(|named| named.get(name).is_some())
                };
                let mut others = value.as_object()?.iter().filter(|(name, _)| !known(name));
                match wanted {
                    Value::Bool(false) => fails(others.next().is_none()),
                    schema => others.find_map(|(_, other)| self.mismatch(schema, other)),
                }
            }
            other => panic!("the keyword `{other}` is not known here"),
        }
    }
}

fn has_type(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("the type `{other}` is not known here"),
    }
}
