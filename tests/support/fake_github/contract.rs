//! GitHub's OpenAPI document: which operations there are, which fields a request may have, and which an answer must have.
//!
//! The fake writes the fields that its tests look at. All others that the document requires are added here, with values that
//! mean nothing, so that every answer is as complete as GitHub's.

use std::fs::File;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};

const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/github");

/// A date for fields that no test looks at.
const SOME_DATE: &str = "2026-01-01T00:00:00Z";

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let file = File::open(format!("{DOCUMENTS}/rest.json.gz")).unwrap();
    let mut document: Value = serde_json::from_reader(GzDecoder::new(file)).unwrap();
    let graphql = File::open(format!("{DOCUMENTS}/graphql.json")).unwrap();
    let graphql: Map<String, Value> = serde_json::from_reader(graphql).unwrap();
    document["paths"].as_object_mut().unwrap().extend(graphql);
    document
});

/// The whole document.
pub fn document() -> &'static Value {
    &DOCUMENT
}

/// An operation that a request asks for.
pub struct Operation {
    /// GitHub's name of it, such as `pulls/create`.
    pub id: &'static str,
    /// The variable parts of the path, decoded.
    pub parameters: Vec<(String, String)>,
    reads: bool,
    definition: &'static Value,
}

impl Operation {
    /// Finds the operation of a request. A `{ref}`, `{branch}` or `{path}` at the end may have several segments.
    pub fn find(method: &str, path: &str) -> Option<Self> {
        let method = method.to_ascii_lowercase();
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let paths = document()["paths"].as_object().unwrap();
        let matching = paths.iter().filter_map(|(template, methods)| {
            let definition = methods.get(&method)?;
            let (parameters, literals) = match_template(template, &segments)?;
            Some((literals, parameters, definition))
        });
        let (_, parameters, definition) = matching.max_by_key(|(literals, ..)| *literals)?;
        Some(Self {
            id: definition["operationId"].as_str().unwrap(),
            parameters,
            reads: method == "get",
            definition,
        })
    }

    /// Whether it only reads.
    pub fn is_read(&self) -> bool {
        self.reads
    }

    /// A variable part of the path.
    pub fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Refuses what GitHub's document does not know: names in the query or the body, and required fields that are missing.
    pub fn check(&self, query: &[(String, String)], body: &Value) -> Result<(), String> {
        let known: Vec<&str> = self.definition["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .map(resolve)
            .filter(|parameter| parameter["in"] == "query")
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        if let Some((name, _)) = query.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(format!("\"{name}\" is not a permitted query parameter."));
        }
        let schema = resolve(&self.definition["requestBody"]["content"]["application/json"]["schema"]);
        let Some(properties) = schema["properties"].as_object() else {
            return Ok(());
        };
        let empty = Map::new();
        let fields = body.as_object().unwrap_or(&empty);
        if let Some(name) = fields.keys().find(|name| !properties.contains_key(*name)) {
            return Err(format!("\"{name}\" is not a permitted key."));
        }
        let mut required = names(&schema["required"]);
        match required.find(|name| !fields.contains_key(*name)) {
            Some(name) => Err(format!("\"{name}\" wasn't supplied.")),
            None => Ok(()),
        }
    }

    /// Adds the required fields that an answer with this status lacks.
    pub fn complete(&self, status: u16, answer: &mut Value) {
        let response = resolve(&self.definition["responses"][status.to_string()]);
        add_required(&response["content"]["application/json"]["schema"], answer);
    }
}

/// Adds the required fields of a schema that has a name.
pub fn complete_as(schema: &str, mut value: Value) -> Value {
    add_required(&document()["components"]["schemas"][schema], &mut value);
    value
}

/// The variable parts, and how many parts are not variable.
fn match_template(template: &str, segments: &[&str]) -> Option<(Vec<(String, String)>, usize)> {
    let parts: Vec<&str> = template.trim_start_matches('/').split('/').collect();
    let mut parameters = Vec::new();
    let mut literals = 0;
    for (index, part) in parts.iter().enumerate() {
        let segment = *segments.get(index)?;
        let Some(name) = part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) else {
            if *part != segment {
                return None;
            }
            literals += 1;
            continue;
        };
        let is_last = index + 1 == parts.len();
        let value = if is_last && ["ref", "branch", "path"].contains(&name) {
            segments[index..].join("/")
        } else {
            segment.to_owned()
        };
        parameters.push((name.to_owned(), decode(&value)));
        if is_last && value.contains('/') {
            return Some((parameters, literals));
        }
    }
    (parts.len() == segments.len()).then_some((parameters, literals))
}

/// Decodes `%2F` and the like.
pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let code = text
            .get(index + 1..index + 3)
            .filter(|_| bytes[index] == b'%')
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(code.unwrap_or(bytes[index]));
        index += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The names and values of a query.
pub fn query(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(&value.replace('+', " ")))
        })
        .collect()
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn resolve(schema: &'static Value) -> &'static Value {
    match schema["$ref"].as_str() {
        Some(reference) => resolve(document().pointer(&reference[1..]).unwrap()),
        None => schema,
    }
}

/// The schemas that hold for an object: all parts, and of alternatives the first that is an object.
fn object_schemas(schema: &'static Value) -> Vec<&'static Value> {
    let schema = resolve(schema);
    let mut found = vec![schema];
    for part in schema["allOf"].as_array().into_iter().flatten() {
        found.extend(object_schemas(part));
    }
    for alternatives in [&schema["oneOf"], &schema["anyOf"]] {
        let alternatives = alternatives.as_array().into_iter().flatten();
        let mut objects = alternatives.filter(|part| resolve(part)["properties"].is_object());
        found.extend(objects.next().map(object_schemas).unwrap_or_default());
    }
    found
}

fn add_required(schema: &'static Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for schema in object_schemas(schema) {
                let properties = &schema["properties"];
                for name in names(&schema["required"]) {
                    if !fields.contains_key(name) {
                        fields.insert(name.to_owned(), anything(name, &properties[name]));
                    }
                }
                for (name, value) in fields.iter_mut() {
                    add_required(&properties[name], value);
                }
            }
        }
        Value::Array(items) => {
            let of_items = &resolve(schema)["items"];
            items.iter_mut().for_each(|item| add_required(of_items, item));
        }
        _ => {}
    }
}

/// Some value that a schema allows.
fn anything(name: &str, schema: &'static Value) -> Value {
    let schema = resolve(schema);
    if schema["nullable"] == true {
        return Value::Null;
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    for alternatives in ["oneOf", "anyOf"] {
        if let Some(first) = schema[alternatives].get(0) {
            return anything(name, first);
        }
    }
    match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("string"), Some("date-time")) => json!(SOME_DATE),
        // A name that no resolver knows: following such an address fails.
        (Some("string"), Some("uri")) => json!(format!("https://github.invalid/{name}")),
        (Some("string"), Some("email")) => json!("someone@github.invalid"),
        (Some("string"), _) => json!(""),
        (Some("integer" | "number"), _) => schema.get("minimum").cloned().unwrap_or_else(|| json!(0)),
        (Some("boolean"), _) => json!(false),
        (Some("array"), _) => json!([]),
        _ => {
            let mut object = json!({});
            add_required(schema, &mut object);
            object
        }
    }
}
