//! The fake Daytona of all `daytona` benches, behind Prism, which validates all requests and responses against Daytona's
//! OpenAPI documents.

use std::sync::Arc;

use libtest_mimic::Trial;
use ralph::sandbox::daytona::DaytonaOptions;

use crate::support::daytona::Daytona;
use crate::support::daytona::prism::Prism;
use crate::support::{base, engine, skip};

/// The name of the test that reports what Prism found.
const VALIDATION: &str = "openapi::all_is_asked_and_answered_as_its_documents_say::daytona";

/// A fake Daytona and its validating proxy.
pub struct ValidatedDaytona {
    /// The image of its sandboxes.
    pub image: String,
    daytona: Daytona,
    /// The error is the reason why there is no proxy.
    prism: Result<Prism, String>,
}

impl ValidatedDaytona {
    /// Starts both. The error is the reason to skip the tests.
    pub async fn start() -> Result<Self, String> {
        let engine = engine::engine().await?;
        let image = base::image(&engine).await?;
        let daytona = Daytona::start(engine).await;
        let prism = Prism::before(&daytona).await;
        Ok(Self {
            image,
            daytona,
            prism,
        })
    }

    /// The options of a provider for it.
    pub fn options(&self) -> DaytonaOptions {
        match &self.prism {
            Ok(prism) => prism.options(&self.daytona),
            Err(_) => self.daytona.options(),
        }
    }

    /// The test that fails if a request or response was invalid. It must run last.
    pub fn validation(self: Arc<Self>) -> Trial {
        Trial::test(VALIDATION, move || match &self.prism {
            Ok(prism) => self.check(prism).map_err(Into::into),
            Err(reason) => {
                skip::record_as(VALIDATION, reason);
                Ok(())
            }
        })
    }

    fn check(&self, prism: &Prism) -> Result<(), String> {
        let mut complaints = prism.complaints(&self.daytona);
        let left = [self.daytona.sandboxes(), self.daytona.vault()].concat();
        complaints.extend(left.iter().map(|name| format!("{name} was left behind")));
        match complaints.as_slice() {
            [] => Ok(()),
            complaints => Err(complaints.join("\n")),
        }
    }
}
