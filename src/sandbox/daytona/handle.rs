//! A sandbox at Daytona, and what its errors mean.

use super::api::DaytonaApi;
use super::wire::{DaytonaPhase, DaytonaSandboxInfo};
use super::{DaytonaError, failed};
use crate::sandbox::SandboxError;

/// One sandbox and the control plane that knows its state.
#[derive(Clone, Debug)]
pub(super) struct DaytonaHandle {
    pub(super) api: DaytonaApi,
    pub(super) info: DaytonaSandboxInfo,
}

impl DaytonaHandle {
    /// Why no command can run any more; `None` while the sandbox runs.
    pub(super) async fn unusable_reason(&self) -> Result<Option<SandboxError>, SandboxError> {
        let name = &self.info.name;
        let found = self.api.sandbox(&self.info.id).await;
        let Some(info) = found.map_err(|error| failed(name, error))? else {
            return Ok(Some(SandboxError::gone(name)));
        };
        Ok(match info.state.phase() {
            DaytonaPhase::Started | DaytonaPhase::Changing => None,
            DaytonaPhase::Removed => Some(SandboxError::gone(name)),
            DaytonaPhase::Stopped | DaytonaPhase::Failed => {
                let reason = format!("its state at Daytona is `{}`", info.state.0);
                Some(SandboxError::lost(name, reason))
            }
        })
    }

    /// Turns an error of Daytona into one of the sandbox. Only the control plane knows whether the sandbox still runs.
    pub(super) async fn explain<T>(&self, result: Result<T, DaytonaError>) -> Result<T, SandboxError> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => Err(match self.unusable_reason().await {
                Ok(Some(reason)) => reason,
                Ok(None) | Err(_) => failed(&self.info.name, error),
            }),
        }
    }
}
