//! Spans as OTLP writes them in JSON.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The id of a span, which is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanId(u64);

impl SpanId {
    pub(super) fn random() -> Self {
        Self(fastrand::u64(1..))
    }

    fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// The role of a span in a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum SpanKind {
    /// Work of this process.
    Internal = 1,
    /// A request to a service.
    Client = 3,
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(super) enum AttributeValue {
    Text(String),
    Count(u64),
    Number(f64),
    Flag(bool),
}

impl AttributeValue {
    /// 64-bit integers are text in the JSON of OTLP.
    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!({ "stringValue": text }),
            Self::Count(count) => json!({ "intValue": count.to_string() }),
            Self::Number(number) => json!({ "doubleValue": number }),
            Self::Flag(flag) => json!({ "boolValue": flag }),
        }
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// One span.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) trace: String,
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) attributes: Vec<(&'static str, AttributeValue)>,
    pub(super) is_error: bool,
}

impl Span {
    fn json(&self) -> Value {
        // 2 is "error", 0 is "unset".
        let code = if self.is_error { 2 } else { 0 };
        let mut span = json!({
            "traceId": self.trace,
            "spanId": self.id.hex(),
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": self.start.as_nanosecond().to_string(),
            "endTimeUnixNano": self.end.as_nanosecond().to_string(),
            "attributes": attributes(&self.attributes),
            "status": { "code": code },
        });
        if let Some(parent) = self.parent {
            span["parentSpanId"] = json!(parent.hex());
        }
        span
    }
}

/// The body of a request with these spans.
pub(super) fn export_request(spans: &[Span]) -> Value {
    let resource = [
        ("service.name", AttributeValue::from("ralph")),
        ("service.version", AttributeValue::from(env!("CARGO_PKG_VERSION"))),
    ];
    json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes(&resource) },
            "scopeSpans": [{
                "scope": { "name": "ralph" },
                "spans": spans.iter().map(Span::json).collect::<Vec<_>>(),
            }],
        }],
    })
}

fn attributes(attributes: &[(&'static str, AttributeValue)]) -> Vec<Value> {
    let attribute = |(key, value): &(&str, AttributeValue)| json!({ "key": key, "value": value.json() });
    attributes.iter().map(attribute).collect()
}
