//! Carries out what people ask of a run: orders at once, everything else before the next prompt.

use std::time::Duration;

use crate::event::EventKind;
use crate::state::{Intervention, InterventionRequest, JournalEntry, StateError};

use super::RunInputs;
use super::error::Halt;
use super::progress::RunProgress;
use super::run::Run;

/// How often the inbox is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until a person asks for a fresh iteration. That a person stops the run meanwhile is an error.
pub(super) async fn until_rotated(inputs: RunInputs<'_>) -> Result<(), Halt> {
    let ends_iteration =
        |intervention: &Intervention| matches!(intervention, Intervention::Stop | Intervention::Rotate);
    match wait_for(inputs, ends_iteration).await? {
        Intervention::Stop => Err(Halt::stopped()),
        _ => Ok(()),
    }
}

/// Waits until a person stops the run. Returns the halt, or the error that made the inbox unreadable.
pub(super) async fn until_stopped(inputs: RunInputs<'_>) -> Halt {
    let stopped = wait_for(inputs, |intervention| *intervention == Intervention::Stop).await;
    stopped.map_or_else(Halt::from, |_| Halt::stopped())
}

/// Waits for an order, and marks it as followed. Other requests stay in the inbox; meanwhile allowed hosts are in force at
/// once.
async fn wait_for(
    inputs: RunInputs<'_>,
    is_wanted: impl Fn(&Intervention) -> bool,
) -> Result<Intervention, StateError> {
    let inbox = inputs.dir.inbox();
    loop {
        let mut pending = inbox.pending()?;
        for request in &pending {
            // A refusal is reported when the request is carried out.
            let _ = inputs.allow_hosts(request);
        }
        pending.retain(|request| is_wanted(&request.intervention));
        if let Some(request) = pending.into_iter().next() {
            inbox.follow(&request.id)?;
            return Ok(request.intervention);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

impl Run<'_> {
    /// Carries out every waiting request, oldest first, each once.
    pub(super) async fn carry_out_interventions(&mut self) -> Result<(), Halt> {
        self.carry_out_waiting(|_| true).await
    }

    /// Records the hosts that a person allowed and that are in force already.
    pub(super) async fn record_allowed_hosts(&mut self) -> Result<(), Halt> {
        self.carry_out_waiting(|asked| matches!(asked, Intervention::AllowHosts { .. }))
            .await
    }

    async fn carry_out_waiting(&mut self, is_meant: impl Fn(&Intervention) -> bool) -> Result<(), Halt> {
        self.record_followed()?;
        let inbox = self.inputs.dir.inbox();
        let waiting = inbox.pending()?.into_iter();
        for request in waiting.filter(|request| is_meant(&request.intervention)) {
            // If ralph was killed after the checkpoint with the result and before the removal, it is there again.
            let result = if self.progress.journal.has_handled(&request.id) {
                Ok(())
            } else {
                self.carry_out(&request).await
            };
            // A crash must not lose it, so it stays in the inbox until its result is in a checkpoint.
            if !matches!(result, Err(Halt::Broken(_))) {
                inbox.remove(&request.id)?;
            }
            result?;
        }
        Ok(())
    }

    /// Writes the orders that were followed meanwhile to the journal.
    fn record_followed(&mut self) -> Result<(), StateError> {
        let inbox = self.inputs.dir.inbox();
        for request in inbox.followed()? {
            if !self.progress.journal.has_handled(&request.id) {
                let entry = self.progress.intervened(&request, None)?;
                self.progress.append(entry)?;
                self.progress.report_intervention(&request, None);
            }
            inbox.remove(&request.id)?;
        }
        Ok(())
    }

    async fn carry_out(&mut self, request: &InterventionRequest) -> Result<(), Halt> {
        let applied = self.apply(request).await;
        let refused = match &applied {
            Err(Halt::Broken(_)) => return applied.map(drop),
            Err(Halt::End { .. }) => None,
            Ok(refused) => refused.clone(),
        };
        // The result and the entry that says so take effect together.
        let entry = self.progress.intervened(request, refused.clone())?;
        self.progress.checkpoint(Some(entry)).await?;
        if refused.is_none() {
            self.show_changes(&request.intervention).await?;
        }
        self.progress.report_intervention(request, refused);
        applied.map(drop)
    }

    /// Applies an intervention. Returns why it is refused, if so.
    async fn apply(&mut self, request: &InterventionRequest) -> Result<Option<String>, Halt> {
        let iteration = self.progress.iterations();
        let files = &mut self.progress.files;
        match &request.intervention {
            Intervention::Stop => return Err(Halt::stopped()),
            Intervention::Pause => return Err(Halt::paused("a person asked for a pause")),
            // The next iteration starts with a fresh context anyway.
            Intervention::Rotate => {}
            Intervention::Note { text } => {
                files.append("notes.md", &format!("\nNote from a person: {}\n", text.trim()))?;
            }
            Intervention::Doctor => self.progress.consult_doctor_now().await?,
            Intervention::Sign(sign) => files.append("guardrails.md", &sign.text(iteration))?,
            Intervention::Append { file, text } => files.append(file.name(), text)?,
            Intervention::Profile { name, .. } => {
                if self.inputs.settings.profiles.get(name).is_none() {
                    return Ok(Some(format!("there is no model profile `{name}`")));
                }
            }
            Intervention::AllowHosts { hosts } => {
                if let Some(refused) = self.inputs.allow_hosts(request) {
                    return Ok(Some(refused));
                }
                let allowed = format!(
                    "\nNote from a person: the sandbox may reach {}.\n",
                    hosts.join(", ")
                );
                files.append("notes.md", &allowed)?;
                if let Some(notice) = self.inputs.closed_ports(hosts) {
                    self.inputs.reporter.warn(notice);
                }
            }
            Intervention::Command { name, line } => return self.run_for_person(name, line).await,
            Intervention::Edit { task } => return self.edit(task).await,
            Intervention::Retry { from } => return self.retry(*from),
            Intervention::Review(round) => return self.begin_review(round),
        }
        Ok(None)
    }
}

impl RunProgress<'_> {
    /// The journal entry of a request, which is also noted in `activity.log`.
    fn intervened(
        &mut self,
        request: &InterventionRequest,
        refused: Option<String>,
    ) -> Result<JournalEntry, StateError> {
        let (what, by) = (request.intervention.summary(), &request.by);
        self.log_activity(&match &refused {
            None => format!("intervention of {by}: {what}"),
            Some(reason) => format!("intervention of {by} refused: {what}: {reason}"),
        })?;
        Ok(JournalEntry::Intervened {
            asked: Box::new(request.clone()),
            refused,
        })
    }

    fn report_intervention(&self, request: &InterventionRequest, refused: Option<String>) {
        self.inputs.reporter.emit(EventKind::Intervened {
            what: request.intervention.summary(),
            by: request.by.clone(),
            refused,
        });
    }
}
