//! All VMs of ralph, of any run, and the removal of orphans.

use std::collections::BTreeMap;

use super::super::place::{Claim, Place, Record};
use super::super::{Activity, Listed, Removable, SandboxError, Standing};
use super::driver::VmDriver;
use super::{VmProvider, on_host};

/// A sandbox that was found.
pub(super) struct Found {
    pub(super) listed: Listed,
    pub(super) place: Place,
    pub(super) record: Option<Record>,
}

impl<D: VmDriver> VmProvider<D> {
    /// All sandboxes: the directories on the host, with the state of their VMs. VMs without a directory do not belong to
    /// ralph.
    pub(super) async fn census(&self) -> Result<Vec<Found>, SandboxError> {
        let vms = self.driver.list().await?;
        let found = self.places()?.into_iter().map(|place| self.found(place, &vms));
        let mut found: Vec<Found> = found.collect();
        found.sort_by(|one, other| one.listed.id.cmp(&other.listed.id));
        Ok(found)
    }

    fn found(&self, place: Place, vms: &BTreeMap<String, Activity>) -> Found {
        let record = place.record();
        let owner = record.as_ref().map(|record| &record.owner);
        let listed = Listed {
            id: place.name(),
            provider: D::NAME,
            run: record.as_ref().map(|record| record.run.clone()),
            activity: vms.get(&place.name()).copied().unwrap_or(Activity::Removed),
            // A sandbox without a record is being created, or its creation was interrupted.
            standing: match owner {
                Some(owner) if owner.is_dead(&self.owner) => Standing::OwnerEnded,
                Some(_) | None => Standing::InUse,
            },
            owner: owner.map(ToString::to_string),
            image: None,
            workspace: place.workspace(),
            created: place.made(),
        };
        Found {
            listed,
            place,
            record,
        }
    }

    pub(super) async fn remove_found(
        &self,
        found: &Found,
        removable: Removable,
    ) -> Result<bool, SandboxError> {
        if removable == Removable::Orphans && !found.listed.standing.is_orphan() {
            return Ok(false);
        }
        let place = &found.place;
        match place
            .hold(found.record.as_ref())
            .map_err(|source| on_host("remove", place, source))?
        {
            Claim::Held(_lock) => self.discard(place).await.map(|()| true),
            Claim::Changed => Ok(false),
        }
    }

    /// Removes sandboxes whose owner process was killed. A process that exits normally stops its own sandbox.
    pub(super) async fn sweep(&self) -> Result<(), SandboxError> {
        for found in self.census().await? {
            if found.listed.activity != Activity::Running && found.place.is_finished() {
                continue;
            }
            if let Err(error) = self.remove_found(&found, Removable::Orphans).await {
                tracing::warn!(sandbox = found.listed.id, %error, "cannot remove an orphan");
            }
        }
        Ok(())
    }
}
