//! Traces of runs for a receiver of OpenTelemetry: OTLP over HTTP, as JSON.
//!
//! A run is a span `invoke_workflow`, an iteration `invoke_agent`, an action `execute_tool`, and a call of a model `chat`, as the
//! conventions for generative AI name them. Spans have names, times and counts, never prompts, answers, commands or paths.

mod exporter;
mod span;

use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::digest::Digest;
use crate::event::{Event, EventKind, EventSink, RunEnd};
use crate::id::RunId;

pub use exporter::{ExporterError, OtlpEndpoint, OtlpExporter};

use span::{AttributeValue, Span, SpanId, SpanKind};

/// Turns the events of one run into spans.
pub struct RunTracer {
    exporter: OtlpExporter,
    state: Mutex<TraceState>,
}

/// The spans that have not ended.
struct TraceState {
    trace: String,
    run: Option<Span>,
    iteration: Option<Span>,
}

impl RunTracer {
    /// A tracer whose spans go to this exporter. The trace of a run is the same in every process that works on it.
    #[must_use]
    pub fn new(exporter: OtlpExporter, run: &RunId) -> Self {
        let digest = Digest::sha256_fields(["ralph trace", run.as_str()]);
        Self {
            exporter,
            state: Mutex::new(TraceState {
                trace: digest.hex()[..32].to_owned(),
                run: None,
                iteration: None,
            }),
        }
    }

    /// Waits a bounded time until the spans so far are sent. Returns how many were lost.
    pub async fn flush(&self) -> u64 {
        self.exporter.flush().await
    }
}

impl EventSink for RunTracer {
    fn emit(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for span in state.take(event) {
            self.exporter.send(span);
        }
    }
}

impl TraceState {
    /// Takes an event. Returns the spans that ended with it.
    fn take(&mut self, event: &Event) -> Vec<Span> {
        match &event.kind {
            EventKind::RunStarted { agent, provider, .. } | EventKind::RunResumed { agent, provider, .. } => {
                let mut run = self.span("invoke_workflow ralph", SpanKind::Internal, None, event.at);
                run.set("gen_ai.operation.name", "invoke_workflow");
                run.set("gen_ai.workflow.name", "ralph");
                run.set("ralph.run", event.run.as_str());
                run.set("ralph.agent", agent.as_str());
                run.set("ralph.provider", provider.as_str());
                self.run = Some(run);
                Vec::new()
            }
            EventKind::IterationStarted { profile } => {
                let ended = self.end_iteration(event.at, None);
                let parent = self.run.as_ref().map(|run| run.id);
                let mut iteration = self.span("invoke_agent", SpanKind::Internal, parent, event.at);
                iteration.set("gen_ai.operation.name", "invoke_agent");
                iteration.set("ralph.profile", profile.as_str());
                if let Some(number) = event.iteration {
                    iteration.set("ralph.iteration", u64::from(number));
                }
                self.iteration = Some(iteration);
                ended
            }
            EventKind::ModelAnswered { .. } => self.chat(event).into_iter().collect(),
            EventKind::Action {
                what,
                seconds: Some(seconds),
                failed,
            } => {
                let tool = tool_name(what);
                let name = format!("execute_tool {tool}");
                let mut span = self.past(&name, SpanKind::Internal, event.at, *seconds);
                span.set("gen_ai.operation.name", "execute_tool");
                span.set("gen_ai.tool.name", tool);
                span.is_error = failed.is_some();
                vec![span]
            }
            EventKind::IterationEnded { gutter, .. } => self.end_iteration(event.at, Some(*gutter)),
            EventKind::RunEnded { outcome, .. } => self.end_run(event.at, *outcome),
            _ => Vec::new(),
        }
    }

    /// A call of a model. The usage of an agent program, whose calls are not seen one by one, belongs to its iteration.
    fn chat(&mut self, event: &Event) -> Option<Span> {
        let EventKind::ModelAnswered {
            model,
            tokens,
            output_tokens,
            cost_usd,
            seconds,
        } = &event.kind
        else {
            return None;
        };
        let mut call = seconds.map(|seconds| {
            let name = format!("chat {model}");
            let mut span = self.past(&name, SpanKind::Client, event.at, seconds);
            span.set("gen_ai.operation.name", "chat");
            span
        });
        if let Some(span) = call.as_mut().or(self.iteration.as_mut()) {
            span.set("gen_ai.request.model", model.as_str());
            let output = output_tokens.unwrap_or(0);
            if let Some(tokens) = tokens {
                span.set("gen_ai.usage.input_tokens", tokens.saturating_sub(output));
                span.set("gen_ai.usage.output_tokens", output);
            }
            if let Some(cost) = cost_usd {
                span.set("ralph.cost_usd", *cost);
            }
        }
        call
    }

    fn end_iteration(&mut self, at: Timestamp, gutter: Option<bool>) -> Vec<Span> {
        let ended = self.iteration.take().map(|mut iteration| {
            iteration.end = at;
            if let Some(gutter) = gutter {
                iteration.set("ralph.gutter", gutter);
            }
            iteration
        });
        ended.into_iter().collect()
    }

    fn end_run(&mut self, at: Timestamp, outcome: RunEnd) -> Vec<Span> {
        let mut ended = self.end_iteration(at, None);
        ended.extend(self.run.take().map(|mut run| {
            run.end = at;
            run.set("ralph.outcome", outcome.to_string().as_str());
            run.is_error = matches!(outcome, RunEnd::Failed | RunEnd::Broken);
            run
        }));
        ended
    }

    /// A span of the current iteration that took so long and ends now.
    fn past(&self, name: &str, kind: SpanKind, end: Timestamp, seconds: f64) -> Span {
        let parent = self.iteration.as_ref().or(self.run.as_ref());
        let took = SignedDuration::try_from_secs_f64(seconds).unwrap_or(SignedDuration::ZERO);
        let start = end.checked_sub(took).unwrap_or(end);
        let mut span = self.span(name, kind, parent.map(|parent| parent.id), start);
        span.end = end;
        span
    }

    fn span(&self, name: &str, kind: SpanKind, parent: Option<SpanId>, start: Timestamp) -> Span {
        Span {
            trace: self.trace.clone(),
            id: SpanId::random(),
            parent,
            name: name.to_owned(),
            kind,
            start,
            end: start,
            attributes: Vec::new(),
            is_error: false,
        }
    }
}

impl Span {
    fn set(&mut self, key: &'static str, value: impl Into<AttributeValue>) {
        let value = value.into();
        self.attributes.retain(|(known, _)| *known != key);
        self.attributes.push((key, value));
    }
}

/// The name of a tool from the description of an action: its first word. The rest is content.
fn tool_name(what: &str) -> &str {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let word = what.split(|c| !is_part(c)).next().unwrap_or_default();
    if word.is_empty() || word.len() > 40 {
        "action"
    } else {
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("run: cargo test --secret", "run")]
    #[case("Bash", "Bash")]
    #[case("mcp__github-search {\"q\": 1}", "mcp__github-search")]
    #[case("/etc/passwd", "action")]
    fn a_tool_is_named_without_its_arguments(#[case] what: &str, #[case] expected: &str) {
        assert_eq!(tool_name(what), expected);
    }
}
