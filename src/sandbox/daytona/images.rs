//! The snapshots of ralph: listed, made and removed.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::api::DaytonaApi;
use super::error::DaytonaError;
use super::wire::{DaytonaSandboxUse, DaytonaSnapshot};
use super::{DaytonaProvider, NAME, snapshot};
use crate::sandbox::{ImageRecords, ProviderImage, ProviderImages, SandboxError, SandboxSpec};

#[async_trait]
impl ProviderImages for DaytonaProvider {
    fn kind(&self) -> &'static str {
        "snapshot"
    }

    async fn list(&self, spec: &SandboxSpec) -> Result<Vec<ProviderImage>, SandboxError> {
        let api = self.api().await?;
        let records = self.options.records.as_ref().map(ImageRecords::all).transpose()?;
        let made = records
            .into_iter()
            .flatten()
            .filter(|record| record.is_of_project);
        let made: BTreeSet<String> = made.map(|record| record.name).collect();
        Ok(list(api, spec, &made).await?)
    }

    async fn ensure(&self, spec: &SandboxSpec) -> Result<Option<String>, SandboxError> {
        let records = self.options.records.as_ref();
        Ok(snapshot::ensure(self.api().await?, spec, records).await?)
    }

    async fn remove(&self, name: &str) -> Result<(), SandboxError> {
        if !snapshot::is_own(name) {
            let reason = format!("ralph did not create `{name}`");
            return Err(SandboxError::unsupported(
                NAME,
                "remove a snapshot of someone else",
                reason,
            ));
        }
        let api = self.api().await?;
        if let Some(found) = api.snapshot(name).await? {
            api.client.delete(&format!("snapshots/{}", found.id)).await?;
        }
        match &self.options.records {
            Some(records) => records.forget(name),
            None => Ok(()),
        }
    }
}

/// `made` are the names of the snapshots that the project made on this host. A colleague's project of the same name makes
/// snapshots with similar names, so a name is no proof.
async fn list(
    api: &DaytonaApi,
    spec: &SandboxSpec,
    made: &BTreeSet<String>,
) -> Result<Vec<ProviderImage>, DaytonaError> {
    let planned = snapshot::plan(api, spec).await?.map(|planned| planned.name);
    // Sandboxes of others count as well: ralph's snapshots are visible to the whole organisation.
    let sandboxes: Vec<DaytonaSandboxUse> = api.list("sandbox", &[]).await?;
    let used: BTreeSet<String> = sandboxes.into_iter().filter_map(|one| one.snapshot).collect();
    let listed = |found: DaytonaSnapshot| ProviderImage {
        is_present: true,
        is_planned: planned.as_ref() == Some(&found.name),
        is_own: !found.general && snapshot::is_own(&found.name),
        is_of_project: made.contains(&found.name),
        in_use: used.contains(&found.name),
        used: found.last_used_at.or(found.created_at),
        name: found.name,
    };
    let found = api.snapshots().await?.into_iter();
    let found = found.filter(|found| found.state != "removing").map(listed);
    let mut images: Vec<ProviderImage> = found.filter(|one| one.is_own || one.is_planned).collect();
    if let Some(name) = planned.filter(|name| images.iter().all(|one| one.name != *name)) {
        images.push(ProviderImage {
            is_present: false,
            is_planned: true,
            is_own: snapshot::is_own(&name),
            is_of_project: true,
            in_use: false,
            used: None,
            name,
        });
    }
    images.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(images)
}
