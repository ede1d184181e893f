//! Applies a diagnosis of the doctor that waits for a person.

use crate::state::{Diagnosis, DiagnosisParts, Intervention, InterventionRequest, RunDir, is_handled};

use super::{AssemblyError, RunControl};

impl RunControl {
    /// Asks a run for what its newest diagnosis proposes, and returns the text of the diagnosis and the requests. Each part is
    /// applied once: what was applied before is left out, by a person or by the run itself. Nothing is changed if any part is
    /// refused.
    pub async fn apply_diagnosis(
        &self,
        run: &RunDir,
        parts: DiagnosisParts,
    ) -> Result<(String, Vec<InterventionRequest>), AssemblyError> {
        let (lines, pending) = (run.journal()?, run.inbox().pending()?);
        let id = &run.facts().id;
        let Some(diagnosis) = Diagnosis::newest(&lines) else {
            let message = format!("there is no diagnosis of run `{id}`");
            return Err(AssemblyError::usage(message).with_hint(format!("`ralph doctor {id}` asks for one")));
        };
        let is_new = |id: &String| !is_handled(&lines, id) && pending.iter().all(|request| request.id != *id);
        let mut wanted = Vec::new();
        if parts.signs && !diagnosis.applied {
            let ids = (1..).map(|number| diagnosis.request_id(&format!("{number}-sign")));
            let signs = diagnosis.report.signs.iter().cloned().map(Intervention::Sign);
            wanted.extend(ids.zip(signs).filter(|(id, _)| is_new(id)));
        }
        let spec = diagnosis.request_id("4-spec");
        if parts.spec && !diagnosis.report.spec_edits.is_empty() && is_new(&spec) {
            let task = diagnosis.report.edited(&run.next_task()?);
            let task = task.map_err(|reason| {
                AssemblyError::usage(reason).with_hint("apply the other parts: `--signs --profile`")
            })?;
            let (edit, profile) = self.checked_edit(run, &task)?;
            let chosen = diagnosis.request_id("4-spec-profile");
            let profile = profile.map(|profile| (chosen, profile));
            // The edit is last: while it is new, its profile is asked for again.
            wanted.extend(profile.filter(|(id, _)| is_new(id)));
            wanted.push((spec, edit));
        }
        let profile = diagnosis.request_id("5-profile");
        if let Some(name) = &diagnosis.report.profile
            && parts.profile
            && !diagnosis.applied
            && is_new(&profile)
        {
            let (name, once) = (name.clone(), false);
            wanted.push((profile, Intervention::Profile { name, once }));
        }
        for (_, intervention) in &wanted {
            self.check_usable(run, intervention).await?;
        }
        let leave = |(id, intervention)| self.leave(run, Some(id), intervention);
        let requests: Result<Vec<InterventionRequest>, AssemblyError> =
            wanted.into_iter().map(leave).collect();
        Ok((diagnosis.report.text(diagnosis.iteration), requests?))
    }
}
