//! The event log of an engine.

use std::collections::HashMap;

use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt;
use jiff::Timestamp;

use super::{Engine, EngineError};

impl Engine {
    /// Whether a process of the container was killed between these times because the container ran out of memory.
    pub async fn ran_out_of_memory(
        &self,
        container: &str,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<bool, EngineError> {
        let seconds = |at: Timestamp| format!("{}.{:09}", at.as_second(), at.subsec_nanosecond());
        let options = EventsOptions {
            since: Some(seconds(since)),
            until: Some(seconds(until)),
            filters: Some(HashMap::from([
                ("container".to_owned(), vec![container.to_owned()]),
                ("event".to_owned(), vec!["oom".to_owned()]),
            ])),
        };
        match self.docker.events(Some(options)).next().await {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => Err(EngineError::from_api(container, error)),
        }
    }
}
