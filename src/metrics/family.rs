//! The metrics that exist, and their values.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The most values that the labels of one metric have. Further ones are counted as `other`.
const MAX_SERIES: usize = 16;

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// How it is counted.
    pub kind: FamilyKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

/// How a metric is counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FamilyKind {
    /// Only goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size, up to each of these bounds.
    Histogram(&'static [f64]),
}

const SECONDS: FamilyKind =
    FamilyKind::Histogram(&[1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0, 7_200.0]);
const SCORES: FamilyKind = FamilyKind::Histogram(&[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]);

macro_rules! families {
    ($($kind:expr, $name:literal [$($label:literal),*]: $help:literal;)*) => {
        /// Every metric.
        pub const FAMILIES: &[Family] = &[$(Family {
            name: $name,
            help: $help,
            kind: $kind,
            labels: &[$($label),*],
        }),*];
    };
}

families! {
    FamilyKind::Gauge, "ralph_active_runs" []: "Runs that this process works on.";
    FamilyKind::Gauge, "ralph_runs" ["state"]: "Runs in the store.";
    FamilyKind::Gauge, "ralph_queue_depth" ["state"]: "Entries of the queue.";
    FamilyKind::Counter, "ralph_run_outcomes_total" ["outcome", "agent", "provider"]: "Runs that ended, or wait for a person.";
    FamilyKind::Counter, "ralph_iterations_total" ["result"]: "Iterations that are recorded, by whether they are in the gutter.";
    SECONDS, "ralph_iteration_seconds" []: "How long iterations take.";
    FamilyKind::Counter, "ralph_model_calls_total" ["model"]: "Calls of models; the whole session of an agent program is one.";
    SECONDS, "ralph_model_call_seconds" []: "How long calls of models take.";
    FamilyKind::Counter, "ralph_tokens_total" ["model", "direction"]: "Tokens of models, where known.";
    FamilyKind::Counter, "ralph_cost_usd_total" ["model"]: "Dollars that models cost, where known.";
    SCORES, "ralph_loop_score" []: "How much iterations look like going in circles, from 0 to 1.";
    FamilyKind::Counter, "ralph_ladder_total" ["rung"]: "Escalation steps after a gutter.";
    FamilyKind::Counter, "ralph_actions_total" ["result"]: "Actions of agents.";
    FamilyKind::Counter, "ralph_checkboxes_ticked_total" []: "Checkboxes whose verification passed.";
    FamilyKind::Counter, "ralph_evidence_total" ["result"]: "Evidence that was gathered.";
    SECONDS, "ralph_evidence_seconds" []: "How long gathering evidence takes.";
    FamilyKind::Counter, "ralph_waits_total" []: "Waits for a model or for CI.";
    FamilyKind::Counter, "ralph_ci_failures_total" []: "Commits that the CI of the forge refused.";
    FamilyKind::Counter, "ralph_budget_warnings_total" ["budget", "percent"]: "Shares of budgets that were reached.";
    FamilyKind::Counter, "ralph_interventions_total" ["result"]: "Requests of people to runs.";
}

/// The values of all metrics.
#[derive(Default)]
pub(super) struct Series {
    numbers: BTreeMap<&'static str, BTreeMap<Vec<String>, f64>>,
    histograms: BTreeMap<&'static str, Histogram>,
}

/// The values of a histogram.
#[derive(Default)]
struct Histogram {
    /// How many values each bound covers.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Series {
    /// Adds to a counter.
    pub(super) fn add(&mut self, name: &str, labels: &[&str], amount: f64) {
        let Some(family) = family(name) else {
            return;
        };
        let values = self.numbers.entry(family.name).or_default();
        let mut key: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
        if !values.contains_key(&key) && values.len() >= MAX_SERIES {
            key = vec!["other".to_owned(); labels.len()];
        }
        *values.entry(key).or_default() += amount;
    }

    /// Replaces all values of a gauge with at most one label.
    pub(super) fn set_all<'a>(&mut self, name: &str, values: impl IntoIterator<Item = (&'a str, u64)>) {
        let is_it = |family: &&Family| family.name == name && family.kind == FamilyKind::Gauge;
        let Some(family) = FAMILIES.iter().find(is_it) else {
            return;
        };
        let key = |label: &str| family.labels.iter().map(|_| label.to_owned()).collect();
        let values = values.into_iter().take(MAX_SERIES);
        let values = values.map(|(label, value)| (key(label), super::as_float(value)));
        self.numbers.insert(family.name, values.collect());
    }

    /// Adds a value to a histogram.
    pub(super) fn observe(&mut self, name: &str, value: f64) {
        let Some(family) = family(name) else {
            return;
        };
        let FamilyKind::Histogram(bounds) = family.kind else {
            return;
        };
        let histogram = self.histograms.entry(family.name).or_default();
        histogram.counts.resize(bounds.len(), 0);
        for (bound, count) in bounds.iter().zip(&mut histogram.counts) {
            *count += u64::from(value <= *bound);
        }
        histogram.count += 1;
        histogram.sum += value;
    }

    /// Everything in the text format. A metric without a value has only its description.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for family in FAMILIES {
            let kind = match family.kind {
                FamilyKind::Counter => "counter",
                FamilyKind::Gauge => "gauge",
                FamilyKind::Histogram(_) => "histogram",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {} {}", family.name, family.help);
            let _ = writeln!(text, "# TYPE {} {kind}", family.name);
            for (values, number) in self.numbers.get(family.name).into_iter().flatten() {
                let _ = writeln!(text, "{}{} {number}", family.name, labels(family, values));
            }
            if let (FamilyKind::Histogram(bounds), Some(histogram)) =
                (family.kind, self.histograms.get(family.name))
            {
                histogram.render(family.name, bounds, &mut text);
            }
        }
        text
    }
}

impl Histogram {
    fn render(&self, name: &str, bounds: &[f64], text: &mut String) {
        for (bound, count) in bounds.iter().zip(&self.counts) {
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum {}", self.sum);
        let _ = writeln!(text, "{name}_count {}", self.count);
    }
}

fn family(name: &str) -> Option<&'static Family> {
    let found = FAMILIES.iter().find(|family| family.name == name);
    debug_assert!(found.is_some(), "no metric `{name}`");
    found
}

/// The labels of one series, `{a="b"}`; nothing without any.
fn labels(family: &Family, values: &[String]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let escaped = |value: &String| {
        value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n")
    };
    let pairs = family.labels.iter().zip(values);
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    format!("{{{}}}", pairs.join(","))
}
