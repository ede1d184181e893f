//! The one Daytona that all its benches are at, with Prism before it: all that contracts ask of it, and all that it answers, is
//! held against Daytona's own documents.

use std::sync::Arc;

use libtest_mimic::Trial;
use ralph::sandbox::daytona::DaytonaOptions;

use crate::support::daytona::Daytona;
use crate::support::daytona::prism::Prism;
use crate::support::{base, engine, skip};

/// The trial of all that passed between contracts and Daytona.
const VERDICT: &str = "openapi::all_is_asked_and_answered_as_its_documents_say::daytona";

/// A whole fake of Daytona, and who judges it.
pub struct JudgedDaytona {
    /// What its sandboxes start from.
    pub image: String,
    daytona: Daytona,
    /// Or why there is none.
    prism: Result<Prism, String>,
}

impl JudgedDaytona {
    /// Starts both, or says why there can be no Daytona.
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

    /// What a provider needs to know of it.
    pub fn options(&self) -> DaytonaOptions {
        match &self.prism {
            Ok(prism) => prism.options(&self.daytona),
            Err(_) => self.daytona.options(),
        }
    }

    /// Judges all that was asked and answered, once nothing is asked any more.
    pub fn verdict(self: Arc<Self>) -> Trial {
        Trial::test(VERDICT, move || match &self.prism {
            Ok(prism) => self.all_is_well(prism).map_err(Into::into),
            Err(reason) => {
                skip::record_as(VERDICT, reason);
                Ok(())
            }
        })
    }

    fn all_is_well(&self, prism: &Prism) -> Result<(), String> {
        let mut complaints = prism.complaints(&self.daytona);
        let left = [self.daytona.sandboxes(), self.daytona.vault()].concat();
        complaints.extend(left.iter().map(|name| format!("{name} was left behind")));
        match complaints.as_slice() {
            [] => Ok(()),
            complaints => Err(complaints.join("\n")),
        }
    }
}
