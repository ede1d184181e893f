//! All sandboxes of this kind on an engine, of whatever run, and the removal of those that are nobody's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::owner::Owner;
use super::super::place::{Claim, Place, Record};
use super::super::{Activity, Listed, Removable, SandboxError, Standing};
use super::plan::label;
use super::{NAME, failed, on_host};
use crate::engine::{Container, ContainerState, Engine};
use crate::id::RunId;

/// Looks at an engine from one machine and one directory of workspaces.
pub(super) struct Census<'a> {
    pub(super) engine: &'a Engine,
    pub(super) base: &'a Path,
    pub(super) here: &'a Owner,
}

/// A sandbox that was found.
pub(super) struct Found {
    pub(super) listed: Listed,
    pub(super) place: Place,
    record: Option<Record>,
    /// By its id: another may have its name by the time it is removed.
    pub(super) container: Option<String>,
    /// What that container does.
    state: Option<ContainerState>,
    /// The holder of its network.
    holder: Option<Container>,
}

impl Found {
    /// Whether nobody put it to rest: something of it runs, or nothing of it ever did.
    pub(super) fn is_restless(&self) -> bool {
        let states = || {
            self.state
                .into_iter()
                .chain(self.holder.as_ref().map(|holder| holder.state))
        };
        let runs = states().any(|state| activity_of(state) == Activity::Running);
        let is_half_made =
            states().next().is_some() && states().all(|state| state == ContainerState::Created);
        runs || is_half_made
    }
}

impl Census<'_> {
    /// All sandboxes, by name: the containers of ours, and the places whose container is gone.
    pub(super) async fn take(&self) -> Result<Vec<Found>, SandboxError> {
        let containers = self.engine.containers(label::RUN).await;
        let containers = containers.map_err(|error| failed("(any)", error))?;
        let places = Place::all(self.base).map_err(|source| SandboxError::host("list", self.base, source))?;
        let (holders, sandboxes): (Vec<Container>, Vec<Container>) =
            containers.into_iter().partition(is_holder);
        let seen: BTreeSet<PathBuf> = sandboxes.iter().filter_map(workspace_of).collect();
        let mut found: Vec<Found> = sandboxes
            .iter()
            .filter_map(|container| self.of_container(container))
            .collect();
        let alone = places
            .into_iter()
            .filter(|place| !seen.contains(&place.workspace()));
        found.extend(alone.map(|place| self.of_place(place)));
        for holder in &holders {
            self.add_holder(holder, &mut found);
        }
        found.sort_by(|one, other| one.listed.id.cmp(&other.listed.id));
        Ok(found)
    }

    /// Removes one with all that belongs to it, unless it may not be removed or somebody took it meanwhile.
    pub(super) async fn remove(&self, found: &Found, removable: Removable) -> Result<bool, SandboxError> {
        let place = &found.place;
        if removable == Removable::Orphans && !found.listed.standing.is_orphan() {
            return Ok(false);
        }
        let claimed = place.hold(found.record.as_ref());
        let held = match claimed.map_err(|source| on_host("remove", place, source))? {
            Claim::Held(lock) => lock,
            Claim::Changed => return Ok(false),
        };
        let holder = found.holder.as_ref().map(|holder| &holder.id);
        for container in found.container.iter().chain(holder) {
            let removed = self.engine.remove_container(container).await;
            removed.map_err(|error| failed(&found.listed.id, error))?;
        }
        // A place that was gone may be there again by now: that of another sandbox, of the same name.
        if held.is_some() {
            place
                .remove()
                .map_err(|source| on_host("remove", place, source))?;
        }
        Ok(true)
    }

    /// Puts a holder to its sandbox; one that outlived everything else is all that is left of one.
    fn add_holder(&self, holder: &Container, found: &mut Vec<Found>) {
        let workspace = workspace_of(holder);
        let own = found
            .iter_mut()
            .find(|found| Some(found.place.workspace()) == workspace);
        match own {
            Some(found) => found.holder = Some(holder.clone()),
            None => found.extend(self.of_container(holder)),
        }
    }

    fn of_container(&self, container: &Container) -> Option<Found> {
        let place = Place::with_workspace(&workspace_of(container)?)?;
        let record = place.record();
        let maker = container.labels.get(label::OWNER);
        let maker: Option<Owner> = maker.and_then(|text| serde_json::from_str(text).ok());
        let owner = record.as_ref().map(|record| &record.owner).or(maker.as_ref());
        let run = container.labels.get(label::RUN);
        let listed = Listed {
            id: container.name.clone(),
            provider: NAME,
            run: record
                .as_ref()
                .map(|record| record.run.clone())
                .or_else(|| RunId::parse(run?).ok()),
            activity: activity_of(container.state),
            standing: self.standing(&place, owner),
            owner: owner.map(ToString::to_string),
            image: Some(container.image.clone()),
            workspace: place.workspace(),
            created: container.created,
        };
        Some(Found {
            listed,
            place,
            record,
            container: Some(container.id.clone()),
            state: Some(container.state),
            holder: None,
        })
    }

    fn of_place(&self, place: Place) -> Found {
        let record = place.record();
        let owner = record.as_ref().map(|record| &record.owner);
        let listed = Listed {
            id: place.name(),
            provider: NAME,
            run: record.as_ref().map(|record| record.run.clone()),
            activity: Activity::Removed,
            // One without a record was interrupted in the making, or is being made at this moment.
            standing: match owner {
                Some(owner) if owner.is_dead(self.here) => Standing::OwnerEnded,
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
            container: None,
            state: None,
            holder: None,
        }
    }

    /// A workspace that cannot be seen from here may be that of another machine on the same engine.
    fn standing(&self, place: &Place, owner: Option<&Owner>) -> Standing {
        let Some(owner) = owner else {
            return Standing::InUse;
        };
        if owner.is_dead(self.here) {
            Standing::OwnerEnded
        } else if owner.is_of_this_machine(self.here) && place.is_gone() {
            Standing::WorkspaceGone
        } else {
            Standing::InUse
        }
    }
}

fn activity_of(state: ContainerState) -> Activity {
    match state {
        ContainerState::Running | ContainerState::Paused => Activity::Running,
        ContainerState::Created | ContainerState::Stopped | ContainerState::OutOfMemory => Activity::Stopped,
    }
}

fn is_holder(container: &Container) -> bool {
    container.labels.get(label::ROLE).map(String::as_str) == Some(label::HOLDER)
}

fn workspace_of(container: &Container) -> Option<PathBuf> {
    container.labels.get(label::WORKSPACE).map(PathBuf::from)
}
