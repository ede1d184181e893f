//! Checks an answer against the JSON schema that the model got.
//!
//! Supports only the keywords that the schema of an [`ActionsAnswer`](super::ActionsAnswer) uses; a test checks that.

use serde_json::Value;
use thiserror::Error;

use super::diff::{Patch, PatchFormatError};
use super::json::{JsonNode, JsonType, TextPosition};
use super::path::{PathError, RelPath};
use super::schema::{NOT_BLANK, PATH_OR_ROOT};

/// One violation of the schema.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} ({position}): {fault}", if path.is_empty() { "the answer" } else { path })]
pub struct AnswerProblem {
    /// The path of the value, for example `actions[1].command`.
    pub path: String,
    /// Where the value starts.
    pub position: TextPosition,
    /// What is wrong.
    pub fault: AnswerFault,
}

/// The ways in which a value can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnswerFault {
    /// A field that is not in the schema.
    #[error("unknown field; allowed here: {}", list(allowed))]
    UnknownField {
        /// The allowed fields.
        allowed: Vec<String>,
    },
    /// A required field is missing.
    #[error("the field `{field}` is missing")]
    MissingField {
        /// The field's name.
        field: String,
    },
    /// A field appears twice.
    #[error("the field comes a second time")]
    RepeatedField,
    /// A value of another type.
    #[error("expected {}, found {found}", expected.join(" or "))]
    WrongType {
        /// The allowed types.
        expected: Vec<String>,
        /// The actual type.
        found: JsonType,
    },
    /// A type of action that does not exist.
    #[error("`{found}` is not an action; expected one of {}", list(allowed))]
    UnknownAction {
        /// The value of `type`.
        found: String,
        /// The known types.
        allowed: Vec<String>,
    },
    /// A number that is not whole, or too small or too large.
    #[error("expected a whole number from {min} to {max}")]
    OutOfRange {
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// A list or a text that is too long.
    #[error("has {found} {unit}; at most {most} are allowed")]
    TooLong {
        /// The unit of both counts.
        unit: &'static str,
        /// The actual count.
        found: u64,
        /// The maximum.
        most: u64,
    },
    /// A string of white space.
    #[error("must not be empty")]
    Blank,
    /// A string with a NUL character.
    #[error("has a NUL character (`\\u0000`)")]
    Nul,
    /// A string with an escape that is not a character, such as a lone surrogate.
    #[error("is not valid text: it contains an escape sequence that is not a character")]
    NotText,
    /// An invalid path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// An invalid diff.
    #[error(transparent)]
    Patch(#[from] PatchFormatError),
    /// An action after one that ends the iteration.
    #[error("comes after `{ending}`, which ends the iteration and must be the last action")]
    AfterEnding {
        /// The name of that action.
        ending: &'static str,
    },
}

impl AnswerProblem {
    pub(super) fn at(node: &JsonNode<'_>, fault: impl Into<AnswerFault>) -> Self {
        Self {
            path: node.path().to_owned(),
            position: node.position(),
            fault: fault.into(),
        }
    }
}

/// All violations of the schema.
pub(super) fn problems(schema: &Value, root: &JsonNode<'_>) -> Vec<AnswerProblem> {
    let mut checker = Checker { problems: Vec::new() };
    checker.value(schema, root);
    checker.problems
}

struct Checker {
    problems: Vec<AnswerProblem>,
}

impl Checker {
    fn value(&mut self, schema: &Value, node: &JsonNode<'_>) {
        if let Some(actions) = schema["oneOf"].as_array() {
            return self.action(actions, node);
        }
        let expected = types(schema);
        let kind = node.kind();
        if !expected.iter().any(|name| matches_type(name, kind)) {
            return self.wrong_type(node, &expected);
        }
        match kind {
            JsonType::Object => self.object(schema, node),
            JsonType::Array => self.array(schema, node),
            JsonType::String => self.string(schema, node),
            JsonType::Number => self.number(schema, node),
            JsonType::Boolean | JsonType::Null => {}
        }
    }

    /// Checks an object against the schema that its field `type` selects.
    fn action(&mut self, schemas: &[Value], node: &JsonNode<'_>) {
        if node.kind() != JsonType::Object {
            return self.wrong_type(node, &["object"]);
        }
        let Some((_, tag)) = node.fields().into_iter().find(|(name, _)| name == "type") else {
            let field = "type".to_owned();
            return self.report(node, AnswerFault::MissingField { field });
        };
        let Ok(found) = tag.read::<String>() else {
            return self.wrong_type(&tag, &["string"]);
        };
        let Some(schema) = schemas.iter().find(|schema| action_type(schema) == Some(&found)) else {
            let allowed = schemas
                .iter()
                .filter_map(action_type)
                .map(str::to_owned)
                .collect();
            return self.report(&tag, AnswerFault::UnknownAction { found, allowed });
        };
        self.object(schema, node);
    }

    fn object(&mut self, schema: &Value, node: &JsonNode<'_>) {
        let properties = schema["properties"].as_object();
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in node.fields() {
            match properties.and_then(|properties| properties.get(&name)) {
                _ if seen.contains(&name) => self.report(&value, AnswerFault::RepeatedField),
                Some(property) => self.value(property, &value),
                None => {
                    let allowed = properties
                        .into_iter()
                        .flat_map(|all| all.keys().cloned())
                        .collect();
                    self.report(&value, AnswerFault::UnknownField { allowed });
                }
            }
            seen.push(name);
        }
        let required = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for field in required.filter(|field| !seen.iter().any(|name| name == field)) {
            let field = field.to_owned();
            self.report(node, AnswerFault::MissingField { field });
        }
    }

    fn array(&mut self, schema: &Value, node: &JsonNode<'_>) {
        let items = node.items();
        self.length(&schema["maxItems"], node, "items", items.len());
        for item in items {
            self.value(&schema["items"], &item);
        }
    }

    fn string(&mut self, schema: &Value, node: &JsonNode<'_>) {
        let Ok(text) = node.read::<String>() else {
            return self.report(node, AnswerFault::NotText);
        };
        self.length(&schema["maxLength"], node, "characters", text.chars().count());
        if text.contains('\0') {
            return self.report(node, AnswerFault::Nul);
        }
        if schema["pattern"] == NOT_BLANK && text.trim().is_empty() {
            self.report(node, AnswerFault::Blank);
        }
        let checked = match schema["format"].as_str() {
            Some(RelPath::FORMAT) => RelPath::parse(&text).map(drop).map_err(AnswerFault::from),
            Some(PATH_OR_ROOT) => RelPath::below_root(&text).map(drop).map_err(AnswerFault::from),
            Some(Patch::FORMAT) => Patch::parse(&text).map(drop).map_err(AnswerFault::from),
            _ => Ok(()),
        };
        if let Err(fault) = checked {
            self.report(node, fault);
        }
    }

    /// Checks a number. The schema has only integers.
    fn number(&mut self, schema: &Value, node: &JsonNode<'_>) {
        let min = schema["minimum"].as_u64().unwrap_or(0);
        let max = schema["maximum"].as_u64().unwrap_or(u64::MAX);
        let inside = node
            .read::<u64>()
            .is_ok_and(|number| (min..=max).contains(&number));
        if !inside {
            self.report(node, AnswerFault::OutOfRange { min, max });
        }
    }

    fn length(&mut self, most: &Value, node: &JsonNode<'_>, unit: &'static str, found: usize) {
        let found = found as u64;
        if let Some(most) = most.as_u64().filter(|most| found > *most) {
            self.report(node, AnswerFault::TooLong { unit, found, most });
        }
    }

    fn report(&mut self, node: &JsonNode<'_>, fault: impl Into<AnswerFault>) {
        self.problems.push(AnswerProblem::at(node, fault));
    }

    fn wrong_type(&mut self, node: &JsonNode<'_>, expected: &[&str]) {
        let expected = expected.iter().map(ToString::to_string).collect();
        let found = node.kind();
        self.report(node, AnswerFault::WrongType { expected, found });
    }
}

/// The type names that a schema allows.
fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// The `type` of the action that a schema describes.
fn action_type(schema: &Value) -> Option<&str> {
    schema["properties"]["type"]["const"].as_str()
}

/// Whether the schema's type name includes a JSON type.
fn matches_type(name: &str, kind: JsonType) -> bool {
    match kind {
        JsonType::Number => name == "integer",
        JsonType::Object | JsonType::Array | JsonType::String | JsonType::Boolean | JsonType::Null => {
            name == kind.to_string()
        }
    }
}

fn list(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
