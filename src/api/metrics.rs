//! Counts for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Api;
use super::problem::Problem;

/// The text format of Prometheus.
pub(super) const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What this process counted, and the runs of the store as they are now.
pub(super) async fn metrics(State(api): State<Arc<Api>>) -> Result<impl IntoResponse, Problem> {
    let gauges = [
        ("ralph_queue_depth", api.store.queue_counts().await?),
        ("ralph_runs", api.store.run_counts().await?),
    ];
    for (name, counts) in &gauges {
        let counts = counts.iter().map(|(state, count)| (state.as_str(), *count));
        api.metrics.set_states(name, counts);
    }
    Ok(([(CONTENT_TYPE, TEXT_FORMAT)], api.metrics.render()))
}
