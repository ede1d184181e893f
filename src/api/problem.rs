//! Errors as `application/problem+json` (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::{AssemblyError, AssemblyErrorKind, ErrorTopic};
use crate::state::StateError;
use crate::store::StoreError;
use crate::task::TaskError;

/// Why a request was refused or failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Problem {
    /// The section of the documentation that explains it.
    #[serde(rename = "type")]
    documentation: String,
    /// The HTTP status.
    status: u16,
    /// The name of the status.
    title: &'static str,
    /// What went wrong.
    detail: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// What the linter found in a task.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    findings: Vec<LintFinding>,
}

/// One mistake in a task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LintFinding {
    /// The line, from 1.
    line: Option<usize>,
    /// Whether it prevents the task from being run.
    is_error: bool,
    /// What is wrong.
    reason: String,
    /// How to fix it.
    fix: String,
}

impl LintFinding {
    pub(super) fn new(finding: &TaskError) -> Self {
        Self {
            line: finding.line,
            is_error: finding.severity == crate::task::LintSeverity::Error,
            reason: finding.reason.clone(),
            fix: finding.fix.clone(),
        }
    }
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            documentation: ErrorTopic::Service.url(),
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("error"),
            detail: detail.into(),
            hint: None,
            findings: Vec::new(),
        }
    }

    /// A request that has another form.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// A request that this caller may not make.
    pub(super) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    /// A failure that is not the caller's.
    pub(super) fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

impl From<AssemblyError> for Problem {
    fn from(error: AssemblyError) -> Self {
        let status = match error.kind() {
            AssemblyErrorKind::Usage => StatusCode::UNPROCESSABLE_ENTITY,
            AssemblyErrorKind::NotFound => StatusCode::NOT_FOUND,
            AssemblyErrorKind::Conflict | AssemblyErrorKind::Paused => StatusCode::CONFLICT,
            AssemblyErrorKind::Runtime | AssemblyErrorKind::Interrupted => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut problem = Self::new(status, error.to_string());
        problem.documentation = error.topic().url();
        problem.hint = error.hint().map(str::to_owned);
        problem.findings = error.findings().iter().map(LintFinding::new).collect();
        problem
    }
}

impl From<StateError> for Problem {
    fn from(error: StateError) -> Self {
        AssemblyError::from(error).into()
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        AssemblyError::from(error).into()
    }
}
