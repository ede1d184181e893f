//! Counts what runs do, for Prometheus.
//!
//! [`Metrics`] is a sink of events; [`Metrics::render`] is the text that a scraper reads. No label is a run, a branch, an issue or a
//! host name, so the number of series is bounded however many runs there are.

mod family;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::event::{Event, EventKind, EventSink, RunEnd};
use crate::id::RunId;

pub use family::{FAMILIES, Family, FamilyKind};

use family::Series;

/// Counts the events of all runs of a process. Clones share the counts.
///
/// ```
/// use ralph::metrics::Metrics;
///
/// let metrics = Metrics::default();
/// metrics.set_states("ralph_queue_depth", [("queued", 3)]);
/// assert!(metrics.render().contains("ralph_queue_depth{state=\"queued\"} 3\n"));
/// ```
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    series: Series,
    /// The agent and the provider of each run that is being worked on, by the run and the number of its sink.
    runs: BTreeMap<(RunId, u64), (String, String)>,
    /// How many sinks were made.
    sinks: u64,
}

/// Counts the events of one run.
struct RunSink {
    metrics: Metrics,
    number: u64,
}

impl Metrics {
    /// A sink for the events of one run. Once it is dropped the run is no longer active, even if no event said that it ended: the
    /// work on a run ends without one if it goes back to the queue, or if another process has it.
    #[must_use]
    pub fn sink(&self) -> Arc<dyn EventSink> {
        let mut counts = self.lock();
        counts.sinks += 1;
        Arc::new(RunSink {
            metrics: self.clone(),
            number: counts.sinks,
        })
    }

    /// Sets a gauge of counts by state, such as `ralph_queue_depth`, in place of what it had. A name that is no such gauge is ignored.
    pub fn set_states<'a>(&self, gauge: &str, counts: impl IntoIterator<Item = (&'a str, u64)>) {
        self.lock().series.set_all(gauge, counts);
    }

    /// Everything in the text format of Prometheus.
    #[must_use]
    pub fn render(&self) -> String {
        let mut counts = self.lock();
        let active = counts.runs.len() as u64;
        counts.series.set_all("ralph_active_runs", [("", active)]);
        counts.series.render()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for RunSink {
    fn emit(&self, event: &Event) {
        self.metrics.lock().count(self.number, event);
    }
}

impl Drop for RunSink {
    fn drop(&mut self) {
        let mut counts = self.metrics.lock();
        counts.runs.retain(|(_, sink), _| *sink != self.number);
    }
}

impl Counts {
    fn count(&mut self, sink: u64, event: &Event) {
        let series = &mut self.series;
        match &event.kind {
            EventKind::RunStarted { agent, provider, .. } | EventKind::RunResumed { agent, provider, .. } => {
                let labels = (agent.clone(), provider.clone());
                self.runs.insert((event.run.clone(), sink), labels);
            }
            EventKind::RunEnded { outcome, .. } => self.end_run(&event.run, sink, *outcome),
            EventKind::IterationEnded { gutter, seconds, .. } => {
                let result = if *gutter { "gutter" } else { "ok" };
                series.add("ralph_iterations_total", &[result], 1.0);
                series.observe("ralph_iteration_seconds", *seconds);
            }
            EventKind::ModelAnswered {
                model,
                tokens,
                output_tokens,
                cost_usd,
                seconds,
            } => {
                series.add("ralph_model_calls_total", &[model], 1.0);
                let output = output_tokens.unwrap_or(0);
                if let Some(tokens) = tokens {
                    let input = tokens.saturating_sub(output);
                    series.add("ralph_tokens_total", &[model, "input"], as_float(input));
                    series.add("ralph_tokens_total", &[model, "output"], as_float(output));
                }
                if let Some(cost) = cost_usd {
                    series.add("ralph_cost_usd_total", &[model], *cost);
                }
                if let Some(seconds) = seconds {
                    series.observe("ralph_model_call_seconds", *seconds);
                }
            }
            EventKind::LoopScored { total, .. } => series.observe("ralph_loop_score", *total),
            EventKind::EvidenceEnded { passed, seconds } => {
                let result = if *passed { "passed" } else { "failed" };
                series.add("ralph_evidence_total", &[result], 1.0);
                series.observe("ralph_evidence_seconds", *seconds);
            }
            kind => count_rest(series, kind),
        }
    }

    fn end_run(&mut self, run: &RunId, sink: u64, outcome: RunEnd) {
        let (agent, provider) = self.runs.remove(&(run.clone(), sink)).unwrap_or_default();
        let labels = [&outcome.to_string(), agent.as_str(), provider.as_str()];
        self.series.add("ralph_run_outcomes_total", &labels, 1.0);
    }
}

/// Counts what has no measure.
fn count_rest(series: &mut Series, kind: &EventKind) {
    match kind {
        EventKind::Action { failed, .. } => {
            let result = if failed.is_some() { "failed" } else { "ok" };
            series.add("ralph_actions_total", &[result], 1.0);
        }
        EventKind::Ladder { rung, .. } => series.add("ralph_ladder_total", &[rung], 1.0),
        EventKind::Ticked { .. } => series.add("ralph_checkboxes_ticked_total", &[], 1.0),
        EventKind::Waiting { .. } => series.add("ralph_waits_total", &[], 1.0),
        EventKind::CiFailed { .. } => series.add("ralph_ci_failures_total", &[], 1.0),
        EventKind::BudgetWarning { budget, percent, .. } => {
            series.add(
                "ralph_budget_warnings_total",
                &[budget, &percent.to_string()],
                1.0,
            );
        }
        EventKind::Intervened { refused, .. } => {
            let result = if refused.is_some() { "refused" } else { "done" };
            series.add("ralph_interventions_total", &[result], 1.0);
        }
        _ => {}
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of tokens lies far below 2^53")]
fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn emit(sink: &dyn EventSink, run: &RunId, kind: EventKind) {
        sink.emit(&Event {
            at: Timestamp::UNIX_EPOCH,
            run: run.clone(),
            iteration: None,
            kind,
        });
    }

    fn answered(model: &str) -> EventKind {
        EventKind::ModelAnswered {
            model: model.to_owned(),
            tokens: Some(110),
            output_tokens: Some(10),
            cost_usd: Some(0.5),
            seconds: Some(2.0),
        }
    }

    #[test]
    fn events_become_series() {
        let (metrics, run) = (Metrics::default(), RunId::random());
        let sink = metrics.sink();
        emit(
            &sink,
            &run,
            EventKind::RunStarted {
                task: "t".to_owned(),
                branch: "b".to_owned(),
                provider: "docker".to_owned(),
                agent: "claude".to_owned(),
            },
        );
        emit(&sink, &run, answered("glm \"x\"\\\n"));
        assert!(metrics.render().contains("ralph_active_runs 1\n"));
        let ended = EventKind::RunEnded {
            outcome: RunEnd::Done,
            reason: String::new(),
        };
        emit(&sink, &run, ended);
        let text = metrics.render();
        for line in [
            "ralph_active_runs 0",
            "# TYPE ralph_run_outcomes_total counter",
            r#"ralph_run_outcomes_total{outcome="done",agent="claude",provider="docker"} 1"#,
            r#"ralph_tokens_total{model="glm \"x\"\\\n",direction="input"} 100"#,
            r#"ralph_tokens_total{model="glm \"x\"\\\n",direction="output"} 10"#,
            r#"ralph_model_call_seconds_bucket{le="5"} 1"#,
            r#"ralph_model_call_seconds_bucket{le="+Inf"} 1"#,
            "ralph_model_call_seconds_sum 2",
            "ralph_model_call_seconds_count 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert!(!text.contains(run.as_str()), "{text}");
    }

    #[test]
    fn a_run_is_active_until_its_sink_is_dropped() {
        let (metrics, run) = (Metrics::default(), RunId::random());
        let resumed = || EventKind::RunResumed {
            recorded: 0,
            repaired: Vec::new(),
            agent: "claude".to_owned(),
            provider: "docker".to_owned(),
        };
        let lost = metrics.sink();
        emit(&lost, &run, resumed());
        // The same process has claimed it again before the first attempt has ended.
        let next = metrics.sink();
        emit(&next, &run, resumed());
        drop(lost);
        assert!(metrics.render().contains("ralph_active_runs 1\n"));
        drop(next);
        let text = metrics.render();
        assert!(text.contains("ralph_active_runs 0\n"), "{text}");
        assert!(!text.contains("ralph_run_outcomes_total{"), "{text}");
    }

    #[test]
    fn hostile_names_make_a_bounded_number_of_series() {
        let metrics = Metrics::default();
        let sink = metrics.sink();
        for number in 0..10_000 {
            let name = format!("model-{number}");
            let run = RunId::random();
            emit(&sink, &run, answered(&name));
            let started = EventKind::RunResumed {
                recorded: 0,
                repaired: Vec::new(),
                agent: name.clone(),
                provider: name.clone(),
            };
            emit(&sink, &run, started);
            let ended = EventKind::RunEnded {
                outcome: RunEnd::Failed,
                reason: String::new(),
            };
            emit(&sink, &run, ended);
            let ladder = EventKind::Ladder {
                rung: name,
                detail: String::new(),
            };
            emit(&sink, &run, ladder);
        }
        let text = metrics.render();
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert!(series <= 300, "{series} series");
        let all: f64 = text
            .lines()
            .filter(|line| line.starts_with("ralph_model_calls_total"))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
            .sum();
        assert!((all - 10_000.0).abs() < 0.5, "{all} calls");
    }
}
