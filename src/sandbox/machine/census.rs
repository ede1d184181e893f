//! All machines of one program that are ralph's, of whatever run, and the removal of those that are nobody's.

use std::collections::BTreeMap;

use super::super::place::{Claim, Place, Record};
use super::super::{Activity, Listed, Removable, SandboxError, Standing};
use super::driver::Driver;
use super::{MachineProvider, on_host};

/// A sandbox that was found.
pub(super) struct Found {
    pub(super) listed: Listed,
    pub(super) place: Place,
    pub(super) record: Option<Record>,
}

impl<D: Driver> MachineProvider<D> {
    /// All sandboxes: what is written down about them here, and what the program says of their machines. Machines of
    /// which nothing is written down here are not ralph's.
    pub(super) async fn census(&self) -> Result<Vec<Found>, SandboxError> {
        let machines = self.driver.all().await?;
        let found = self
            .places()?
            .into_iter()
            .map(|place| self.found(place, &machines));
        let mut found: Vec<Found> = found.collect();
        found.sort_by(|one, other| one.listed.id.cmp(&other.listed.id));
        Ok(found)
    }

    fn found(&self, place: Place, machines: &BTreeMap<String, Activity>) -> Found {
        let record = place.record();
        let owner = record.as_ref().map(|record| &record.owner);
        let listed = Listed {
            id: place.name(),
            provider: D::NAME,
            run: record.as_ref().map(|record| record.run.clone()),
            activity: machines.get(&place.name()).copied().unwrap_or(Activity::Removed),
            // One without a record is being made at this moment, or was interrupted in the making.
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

    /// Removes what a process left that was killed: whoever ends in peace puts its sandbox to rest, and whoever is killed
    /// while making one leaves something that nobody can use.
    pub(super) async fn sweep(&self) -> Result<(), SandboxError> {
        for found in self.census().await? {
            if found.listed.activity != Activity::Running && found.place.is_finished() {
                continue;
            }
            if let Err(error) = self.remove_found(&found, Removable::Orphans).await {
                tracing::warn!(sandbox = found.listed.id, %error, "an orphan could not be removed");
            }
        }
        Ok(())
    }
}
