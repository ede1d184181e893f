//! Answers of the REST API.

use axum::body::Body;
use axum::response::Response;
use serde_json::{Value, json};

/// An answer before its required fields are added.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Option<Value>,
}

/// An answer; the error is a refusal.
pub type Handled = Result<Reply, Reply>;

impl Reply {
    pub fn new(status: u16, body: Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Some(body),
        }
    }

    /// 200 with this body.
    pub fn ok(body: Value) -> Handled {
        Ok(Self::new(200, body))
    }

    /// 201 with this body.
    pub fn created(body: Value) -> Handled {
        Ok(Self::new(201, body))
    }

    /// 204 without a body.
    pub fn no_content() -> Handled {
        Ok(Self {
            status: 204,
            headers: Vec::new(),
            body: None,
        })
    }

    /// A refusal with a message.
    pub fn refuse(status: u16, message: &str) -> Self {
        let body = json!({
            "message": message,
            "documentation_url": "https://docs.github.com/rest",
            "status": status.to_string(),
        });
        Self::new(status, body)
    }

    pub fn not_found() -> Self {
        Self::refuse(404, "Not Found")
    }

    /// 422 for a field. An empty message is left out, as GitHub does for codes other than `custom`.
    pub fn invalid(resource: &str, field: &str, code: &str, message: &str) -> Self {
        let mut error = json!({ "resource": resource, "field": field, "code": code });
        if !message.is_empty() {
            error["message"] = json!(message);
        }
        let mut reply = Self::refuse(422, "Validation Failed");
        if let Some(body) = &mut reply.body {
            body["errors"] = json!([error]);
        }
        reply
    }

    /// Adds a header.
    pub fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    pub fn into_response(self) -> Response {
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(*name, value);
        }
        let Some(body) = self.body else {
            return response.body(Body::empty()).unwrap();
        };
        let response = response.header("content-type", "application/json; charset=utf-8");
        response.body(Body::from(body.to_string())).unwrap()
    }
}
