//! The OpenAPI document that describes all operations.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::assembly::DashboardMode;

use super::operation::Operation;
use super::operations::operations;
use super::problem::Problem;

pub(super) async fn document() -> axum::Json<Value> {
    axum::Json(openapi())
}

/// The OpenAPI 3.1 document of the API.
#[must_use]
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations() {
        let described = describe(&operation, &mut schemas);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_ascii_lowercase()] = described;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ralph",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Look at the runs of one user and steer them. Errors are `application/problem+json`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": super::access::SESSION_COOKIE},
            },
        },
    })
}

fn describe(operation: &Operation, schemas: &mut SchemaGenerator) -> Value {
    let mut success = json!({"description": operation.status.canonical_reason()});
    if let Some(result) = operation.result {
        success["content"] = json!({operation.content_type: {"schema": result(schemas)}});
    }
    let problem = schemas.subschema_for::<Problem>();
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters(operation, schemas),
        "responses": {
            operation.status.as_str(): success,
            "default": {
                "description": "The request was refused or failed",
                "content": {"application/problem+json": {"schema": problem}},
            },
        },
    });
    if let Some(body) = operation.body {
        let content = json!({"application/json": {"schema": body(schemas)}});
        described["requestBody"] = json!({"required": true, "content": content});
    }
    if let Some(scope) = operation.scope {
        let mut needs = format!("Needs the scope `{}`.", scope.name());
        if operation.mode > DashboardMode::Autonomous {
            needs = format!("{needs} Needs the mode `{}`.", operation.mode.name());
        }
        described["description"] = json!(needs);
        described["security"] = json!([{"token": []}, {"session": []}]);
    }
    described
}

fn parameters(operation: &Operation, schemas: &mut SchemaGenerator) -> Vec<Value> {
    let parts = operation.path.split('/');
    let names = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let of_path = |name: &str| {
        let kind = if name == "iteration" {
            json!({"type": "integer", "minimum": 1})
        } else {
            json!({"type": "string"})
        };
        json!({"name": name, "in": "path", "required": true, "schema": kind})
    };
    let mut found: Vec<Value> = names.map(of_path).collect();
    let Some(query) = operation.parameters else {
        return found;
    };
    let schema = query(schemas);
    let required = schema
        .get("required")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    for (name, mut schema) in properties {
        let description = schema
            .as_object_mut()
            .and_then(|schema| schema.remove("description"));
        found.push(json!({
            "name": name,
            "in": "query",
            "required": required.contains(&json!(name)),
            "description": description,
            "schema": schema,
        }));
    }
    found
}
