//! Checks an answer against the JSON schema that was shown to the model, and says where it differs.
//!
//! Only the keywords that the schema of an [`Answer`](super::Answer) uses are known; a test keeps it so.

use serde_json::Value;
use thiserror::Error;

use super::diff::{Patch, PatchFormatError};
use super::json::{Kind, Node, Position};
use super::path::{PathError, RelPath};
use super::schema::{NOT_BLANK, PATH_OR_ROOT};

/// One thing that is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{} ({position}): {fault}", if path.is_empty() { "the answer" } else { path })]
pub struct Problem {
    /// Which value, for example `actions[1].command`.
    pub path: String,
    /// Where it stands.
    pub position: Position,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What can be wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// A field that is not in the schema.
    #[error("unknown field; allowed here: {}", list(allowed))]
    UnknownField {
        /// The fields that are.
        allowed: Vec<String>,
    },
    /// A field that must be there.
    #[error("the field `{field}` is missing")]
    MissingField {
        /// Which one.
        field: String,
    },
    /// A field that is there already.
    #[error("the field comes a second time")]
    RepeatedField,
    /// A value of another type.
    #[error("expected {}, found {found}", expected.join(" or "))]
    WrongType {
        /// The types that may stand here.
        expected: Vec<String>,
        /// The one that does.
        found: Kind,
    },
    /// A type of action that does not exist.
    #[error("`{found}` is no type of action; expected one of {}", list(allowed))]
    UnknownAction {
        /// What is there.
        found: String,
        /// The types that exist.
        allowed: Vec<String>,
    },
    /// A number that is not whole, or too small or too large.
    #[error("expected a whole number from {min} to {max}")]
    OutOfRange {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A list or a text that is too long.
    #[error("has {found} {unit}; at most {most} are allowed")]
    TooLong {
        /// What was counted.
        unit: &'static str,
        /// How many there are.
        found: u64,
        /// How many there may be.
        most: u64,
    },
    /// A text of nothing but space.
    #[error("must not be empty")]
    Blank,
    /// A text with a NUL character.
    #[error("has a NUL character (`\\u0000`)")]
    Nul,
    /// A string with an escape that stands for no character.
    #[error("is no text: it has an escape sequence that stands for no character")]
    NotText,
    /// A path that is not in the clone.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A diff that is none.
    #[error(transparent)]
    Patch(#[from] PatchFormatError),
    /// An action after one that ends the iteration.
    #[error("comes after `{ending}`, which ends the iteration and must be the last action")]
    AfterEnding {
        /// The action that ends it.
        ending: &'static str,
    },
}

impl Problem {
    pub(super) fn at(node: &Node<'_>, fault: impl Into<Fault>) -> Self {
        Self {
            path: node.path().to_owned(),
            position: node.position(),
            fault: fault.into(),
        }
    }
}

/// Everything about an answer that its schema does not allow.
pub(super) fn problems(schema: &Value, root: &Node<'_>) -> Vec<Problem> {
    let mut checker = Checker { problems: Vec::new() };
    checker.value(schema, root);
    checker.problems
}

struct Checker {
    problems: Vec<Problem>,
}

impl Checker {
    fn value(&mut self, schema: &Value, node: &Node<'_>) {
        if let Some(actions) = schema["oneOf"].as_array() {
            return self.action(actions, node);
        }
        let expected = types(schema);
        let kind = node.kind();
        if !expected.iter().any(|name| stands_for(name, kind)) {
            return self.wrong_type(node, &expected);
        }
        match kind {
            Kind::Object => self.object(schema, node),
            Kind::Array => self.array(schema, node),
            Kind::String => self.string(schema, node),
            Kind::Number => self.number(schema, node),
            Kind::Boolean | Kind::Null => {}
        }
    }

    /// Checks an object of which the field `type` says which of the schemas it follows.
    fn action(&mut self, schemas: &[Value], node: &Node<'_>) {
        if node.kind() != Kind::Object {
            return self.wrong_type(node, &["object"]);
        }
        let Some((_, tag)) = node.fields().into_iter().find(|(name, _)| name == "type") else {
            let field = "type".to_owned();
            return self.report(node, Fault::MissingField { field });
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
            return self.report(&tag, Fault::UnknownAction { found, allowed });
        };
        self.object(schema, node);
    }

    fn object(&mut self, schema: &Value, node: &Node<'_>) {
        let properties = schema["properties"].as_object();
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in node.fields() {
            match properties.and_then(|properties| properties.get(&name)) {
                _ if seen.contains(&name) => self.report(&value, Fault::RepeatedField),
                Some(property) => self.value(property, &value),
                None => {
                    let allowed = properties
                        .into_iter()
                        .flat_map(|all| all.keys().cloned())
                        .collect();
                    self.report(&value, Fault::UnknownField { allowed });
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
            self.report(node, Fault::MissingField { field });
        }
    }

    fn array(&mut self, schema: &Value, node: &Node<'_>) {
        let items = node.items();
        self.length(&schema["maxItems"], node, ("items", items.len()));
        for item in items {
            self.value(&schema["items"], &item);
        }
    }

    fn string(&mut self, schema: &Value, node: &Node<'_>) {
        let Ok(text) = node.read::<String>() else {
            return self.report(node, Fault::NotText);
        };
        self.length(&schema["maxLength"], node, ("characters", text.chars().count()));
        if text.contains('\0') {
            return self.report(node, Fault::Nul);
        }
        if schema["pattern"] == NOT_BLANK && text.trim().is_empty() {
            self.report(node, Fault::Blank);
        }
        let checked = match schema["format"].as_str() {
            Some(RelPath::FORMAT) => RelPath::parse(&text).map(drop).map_err(Fault::from),
            Some(PATH_OR_ROOT) => RelPath::below_root(&text).map(drop).map_err(Fault::from),
            Some(Patch::FORMAT) => Patch::parse(&text).map(drop).map_err(Fault::from),
            _ => Ok(()),
        };
        if let Err(fault) = checked {
            self.report(node, fault);
        }
    }

    /// Checks a number; the only ones there are, are whole.
    fn number(&mut self, schema: &Value, node: &Node<'_>) {
        let min = schema["minimum"].as_u64().unwrap_or(0);
        let max = schema["maximum"].as_u64().unwrap_or(u64::MAX);
        let inside = node
            .read::<u64>()
            .is_ok_and(|number| (min..=max).contains(&number));
        if !inside {
            self.report(node, Fault::OutOfRange { min, max });
        }
    }

    fn length(&mut self, most: &Value, node: &Node<'_>, (unit, found): (&'static str, usize)) {
        let found = found as u64;
        if let Some(most) = most.as_u64().filter(|most| found > *most) {
            self.report(node, Fault::TooLong { unit, found, most });
        }
    }

    fn report(&mut self, node: &Node<'_>, fault: impl Into<Fault>) {
        self.problems.push(Problem::at(node, fault));
    }

    fn wrong_type(&mut self, node: &Node<'_>, expected: &[&str]) {
        let expected = expected.iter().map(ToString::to_string).collect();
        let found = node.kind();
        self.report(node, Fault::WrongType { expected, found });
    }
}

/// The names of the types that a schema allows.
fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// The `type` of the actions that a schema describes.
fn action_type(schema: &Value) -> Option<&str> {
    schema["properties"]["type"]["const"].as_str()
}

/// Whether a value of this kind can be of the type that the schema names so.
fn stands_for(name: &str, kind: Kind) -> bool {
    match kind {
        Kind::Number => name == "integer",
        Kind::Object | Kind::Array | Kind::String | Kind::Boolean | Kind::Null => name == kind.to_string(),
    }
}

fn list(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
