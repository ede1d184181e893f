//! What is the same for every provider whose sandboxes have a workspace on the host: naming, taking over, listing and
//! removing sandboxes. A [`WorkspaceBackend`] does the rest.

mod images;

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use jiff::Timestamp;

use super::files::FileOwner;
use super::name::names;
use super::owner::Owner;
use super::sandbox_dir::{DirLock, SandboxDir, SandboxRecord};
use super::{
    Capabilities, Provider, ProviderImage, RemovalScope, Reuse, Sandbox, SandboxActivity, SandboxError,
    SandboxListing, SandboxOwnership, SandboxSpec,
};
use crate::id::RunId;
use crate::network::Policy;
use crate::text::error_chain;

/// Runs the containers or VMs of one provider.
#[async_trait]
pub(super) trait WorkspaceBackend: Send + Sync + 'static {
    /// The name used in `sandbox.type`.
    const NAME: &'static str;

    /// A live sandbox.
    type Sandbox: Sandbox + 'static;

    /// Whether evidence gets a sandbox of its own.
    const EVIDENCE_APART: bool;

    /// The word for what its sandboxes start from, if the backend keeps that; the methods about images are for these.
    const IMAGE_KIND: Option<&'static str> = None;

    /// What its sandboxes can enforce.
    fn capabilities(&self) -> Capabilities;

    /// Why it cannot enforce a policy; `None` if it can.
    fn objection(&self, _policy: &Policy) -> Option<String> {
        None
    }

    /// Whether the backend can be used on this host.
    async fn check(&self) -> Result<(), SandboxError>;

    /// How networks reach the gateway, and why; see [`Provider::seal`].
    async fn seal(&self) -> Result<Option<String>, SandboxError> {
        Ok(None)
    }

    /// Who owns the files of a workspace, if that is not the user of this process.
    async fn file_owner(&self) -> Result<Option<FileOwner>, SandboxError> {
        Ok(None)
    }

    /// Changes with everything that a sandbox is created from. `None` if the image of the spec does not exist.
    async fn fingerprint(&self, spec: &SandboxSpec) -> Result<Option<String>, SandboxError>;

    /// Creates and starts a sandbox. `None` if the backend uses the name for something else already. If it fails, removes
    /// whatever it created, and the directory unless only that leads to what could not be removed.
    async fn create(
        &self,
        dir: &SandboxDir,
        spec: &SandboxSpec,
        record: &SandboxRecord,
    ) -> Result<Option<Self::Sandbox>, SandboxError>;

    /// Opens the sandbox of this directory. `None` if a part of it is missing. The caller starts it.
    async fn open(&self, dir: &SandboxDir, spec: &SandboxSpec)
    -> Result<Option<Self::Sandbox>, SandboxError>;

    /// Opens a sandbox that belongs to another process, to run commands in it. `None` if that is not possible.
    async fn attach(&self, found: &FoundSandbox) -> Result<Option<Self::Sandbox>, SandboxError>;

    /// All containers or VMs of ralph, `dirs` being the directories below the base directory.
    async fn instances(&self, dirs: &[SandboxDir]) -> Result<Vec<Instance>, SandboxError>;

    /// Removes what runs for the sandbox of this directory, if anything does.
    async fn remove_at(&self, dir: &SandboxDir) -> Result<(), SandboxError>;

    /// Removes exactly this instance. Another sandbox may have its name by now.
    async fn remove(&self, instance: &Instance) -> Result<(), SandboxError> {
        self.remove_at(&instance.dir).await
    }

    /// As [`Provider::remove_abandoned_probes`].
    async fn remove_abandoned_probes(&self) -> Result<(), SandboxError> {
        Ok(())
    }

    /// What sandboxes start from, `dirs` being the directories below the base directory.
    async fn images(
        &self,
        _spec: &SandboxSpec,
        _dirs: &[SandboxDir],
    ) -> Result<Vec<ProviderImage>, SandboxError> {
        Ok(Vec::new())
    }

    /// Makes what sandboxes of this spec start from, unless it exists, with a directory of its own.
    async fn ensure_image(
        &self,
        _dir: &SandboxDir,
        _spec: &SandboxSpec,
    ) -> Result<Option<String>, SandboxError> {
        Ok(None)
    }

    /// Removes what sandboxes started from.
    async fn remove_image(&self, _name: &str) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// What a backend runs for one sandbox.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) name: String,
    pub(super) dir: SandboxDir,
    /// How the backend identifies its containers, the sandbox's own first.
    pub(super) ids: Vec<String>,
    pub(super) activity: SandboxActivity,
    /// Whether its owner must have been killed, if it is an orphan: a process that ends normally stops its sandbox.
    pub(super) needs_sweep: bool,
    pub(super) image: Option<String>,
    pub(super) created: Option<Timestamp>,
    /// The run and the process that created it, where the backend has labels.
    pub(super) creator: (Option<RunId>, Option<Owner>),
}

/// A sandbox that was found: its listing, its directory, and what runs for it.
#[derive(Debug)]
pub(super) struct FoundSandbox {
    pub(super) listing: SandboxListing,
    pub(super) dir: SandboxDir,
    /// Whether the directory existed.
    pub(super) had_dir: bool,
    pub(super) record: Option<SandboxRecord>,
    pub(super) instance: Option<Instance>,
}

/// A provider whose sandboxes have a workspace on the host.
pub(super) struct WorkspaceProvider<B> {
    backend: B,
    base: PathBuf,
    owner: Owner,
}

impl<B: WorkspaceBackend> WorkspaceProvider<B> {
    /// A provider that keeps its sandbox directories below `base`.
    pub(super) fn new(backend: B, base: PathBuf, host_name: &str) -> Self {
        Self {
            backend,
            base,
            owner: Owner::this_process(host_name),
        }
    }

    /// This process, as the owner of a sandbox.
    fn this_owner(&self) -> Result<Owner, SandboxError> {
        let id = SandboxDir::ensure_base_id(&self.base)?;
        Ok(self.owner.clone().in_data_dir(id))
    }

    /// The directories that have a record.
    fn records(&self) -> Result<Vec<(SandboxDir, SandboxRecord)>, SandboxError> {
        let dirs = SandboxDir::all(&self.base)?.into_iter();
        Ok(dirs
            .filter_map(|dir| Some((dir.clone(), dir.record()?)))
            .collect())
    }

    /// The sandbox that the agent of this run works in.
    fn find_run(&self, run: &RunId) -> Result<Option<(SandboxDir, SandboxRecord)>, SandboxError> {
        let mut records = self.records()?.into_iter();
        Ok(records.find(|(_, record)| &record.run == run && !record.for_evidence))
    }

    /// Removes the sandboxes for evidence that an earlier process of this run left, and what an engine kept that failed
    /// while it created or removed one.
    async fn discard_evidence(&self, spec: &SandboxSpec) -> Result<(), SandboxError> {
        for (dir, record) in self.records()? {
            if record.run == spec.run && record.for_evidence {
                self.discard(&dir).await?;
            }
        }
        for name in names(&evidence_spec(spec), &self.base) {
            let dir = SandboxDir::new(&self.base, &name);
            if B::EVIDENCE_APART && dir.is_gone() {
                self.backend.remove_at(&dir).await?;
            }
        }
        Ok(())
    }

    /// The record of a new sandbox.
    async fn new_record(
        &self,
        spec: &SandboxSpec,
        for_evidence: bool,
    ) -> Result<SandboxRecord, SandboxError> {
        let fingerprint = self.backend.fingerprint(spec).await?;
        Ok(SandboxRecord {
            run: spec.run.clone(),
            task: spec.purpose.task.clone(),
            fingerprint: fingerprint.ok_or_else(|| SandboxError::missing_image(spec.image.as_deref()))?,
            owner: self.this_owner()?,
            for_evidence,
        })
    }

    /// Creates a sandbox under the first of its names that is free.
    async fn create_named(
        &self,
        spec: &SandboxSpec,
        record: &SandboxRecord,
    ) -> Result<B::Sandbox, SandboxError> {
        let owner = self.backend.file_owner().await?;
        for name in names(spec, &self.base) {
            let dir = SandboxDir::new(&self.base, &name);
            if !dir.create(record, owner)? {
                continue;
            }
            match self.backend.create(&dir, spec, record).await? {
                Some(sandbox) => return Ok(sandbox),
                None => dir.remove().await?,
            }
        }
        Err(SandboxError::names_are_taken(B::NAME, &spec.run))
    }

    /// Takes over a sandbox of the same task and with the same fingerprint whose owner has ended.
    async fn take_over(
        &self,
        spec: &SandboxSpec,
        record: &SandboxRecord,
    ) -> Result<Option<B::Sandbox>, SandboxError> {
        for (dir, found) in self.records()? {
            let fits = found.task == record.task && found.fingerprint == record.fingerprint;
            if !fits
                || found.for_evidence
                || !found.owner.is_dead(&self.owner)
                || !dir.claim(&found, record)?
            {
                continue;
            }
            let opened = async {
                let opened = self.backend.open(&dir, spec).await?;
                if let Some(sandbox) = &opened {
                    sandbox.start().await?;
                }
                Ok::<_, SandboxError>(opened)
            };
            match opened.await {
                Ok(Some(sandbox)) => return Ok(Some(sandbox)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(sandbox = dir.name(), error = %error_chain(&error), "cannot reuse a sandbox, removing it");
                }
            }
            self.discard(&dir).await?;
        }
        Ok(None)
    }

    async fn discard(&self, dir: &SandboxDir) -> Result<(), SandboxError> {
        self.backend.remove_at(dir).await?;
        dir.remove().await
    }

    /// Removes sandboxes of this data directory whose owner process was killed. A process that exits normally stops its
    /// own sandbox. Also removes containers whose directory is gone: the engine failed before they could be removed.
    async fn sweep(&self) -> Result<(), SandboxError> {
        for found in self.census().await? {
            let Some(instance) = found.instance.as_ref().filter(|_| found.listing.is_own) else {
                continue;
            };
            let has_no_dir = found.listing.standing == SandboxOwnership::WorkspaceGone;
            if !instance.needs_sweep && !has_no_dir {
                continue;
            }
            // The orphan of another user can only be removed by that user.
            if let Err(error) = self.remove_found(&found, RemovalScope::Orphans).await {
                tracing::warn!(sandbox = found.listing.id, error = %error_chain(&error), "cannot remove an orphaned sandbox");
            }
        }
        Ok(())
    }

    /// All sandboxes by name: those that the backend knows, and directories whose container or VM is gone.
    async fn census(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let dirs = SandboxDir::all(&self.base)?;
        let base_id = SandboxDir::base_id(&self.base)?;
        let instances = self.backend.instances(&dirs).await?;
        let alone = |dir: &SandboxDir| instances.iter().all(|instance| instance.dir != *dir);
        let alone: Vec<SandboxDir> = dirs.into_iter().filter(alone).collect();
        let alone = alone.into_iter().map(|dir| (dir, None));
        let all = alone.chain(instances.into_iter().map(|it| (it.dir.clone(), Some(it))));
        let mut found: Vec<FoundSandbox> = all
            .map(|(dir, instance)| self.found(dir, instance, base_id.as_deref()))
            .collect();
        // The sandbox of the agent comes before that of evidence, so that a search by run finds it.
        let order = |found: &FoundSandbox| {
            let for_evidence = found.record.as_ref().is_some_and(|record| record.for_evidence);
            (for_evidence, found.listing.id.clone())
        };
        found.sort_by_key(order);
        Ok(found)
    }

    fn found(&self, dir: SandboxDir, instance: Option<Instance>, base_id: Option<&str>) -> FoundSandbox {
        let record = dir.record();
        let (creator_run, creator) = instance.as_ref().map_or((None, None), |it| it.creator.clone());
        let run = record.as_ref().map(|record| record.run.clone()).or(creator_run);
        // Without a record, the directory may be on another host with the same name.
        let is_known = record.is_some() || creator.as_ref().is_some_and(|it| it.may_be_in_data_dir(base_id));
        let owner = record.as_ref().map(|record| record.owner.clone()).or(creator);
        let listing = SandboxListing {
            // Without a directory, the instance may be a holder, which has a name of its own.
            id: match &instance {
                Some(instance) if dir.is_gone() => instance.name.clone(),
                Some(_) | None => dir.name(),
            },
            provider: B::NAME,
            run,
            is_own: dir.is_below(&self.base),
            activity: instance
                .as_ref()
                .map_or(SandboxActivity::Removed, |instance| instance.activity),
            standing: self.ownership(&dir, owner.as_ref().filter(|_| is_known)),
            owner: owner.map(|owner| owner.to_string()),
            image: instance.as_ref().and_then(|instance| instance.image.clone()),
            workspace: dir.workspace(),
            created: match &instance {
                Some(instance) => instance.created,
                None => dir.modified(),
            },
        };
        FoundSandbox {
            listing,
            had_dir: !dir.is_gone(),
            dir,
            record,
            instance,
        }
    }

    /// Without a record a sandbox is being created right now, or its creation was interrupted. A workspace that this
    /// host does not have may be on another host that uses the same engine.
    fn ownership(&self, dir: &SandboxDir, owner: Option<&Owner>) -> SandboxOwnership {
        match owner {
            Some(owner) if owner.is_dead(&self.owner) => SandboxOwnership::OwnerEnded,
            Some(owner) if owner.is_on_same_host(&self.owner) && dir.is_gone() => {
                SandboxOwnership::WorkspaceGone
            }
            Some(_) | None => SandboxOwnership::InUse,
        }
    }

    async fn find(&self, id: &str) -> Result<Option<FoundSandbox>, SandboxError> {
        let found = self.census().await?;
        Ok(found.into_iter().find(|found| found.listing.id == id))
    }

    /// Removes a sandbox, unless `scope` excludes it or another process took it over meanwhile.
    async fn remove_found(&self, found: &FoundSandbox, scope: RemovalScope) -> Result<bool, SandboxError> {
        if scope == RemovalScope::Orphans && !found.listing.standing.is_orphan() {
            return Ok(false);
        }
        // A directory that did not exist may exist by now: that of another sandbox with the same name.
        let seen = found.record.as_ref();
        let lock = match found.had_dir.then(|| found.dir.lock(seen)).transpose()? {
            Some(DirLock::Held(lock)) => lock,
            Some(DirLock::Changed) => return Ok(false),
            None => None,
        };
        if let Some(instance) = &found.instance {
            self.backend.remove(instance).await?;
        }
        if lock.is_some() {
            found.dir.remove().await?;
        }
        Ok(true)
    }
}

#[async_trait]
impl<B: WorkspaceBackend> Provider for WorkspaceProvider<B> {
    fn name(&self) -> &'static str {
        B::NAME
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        self.backend.objection(policy)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.backend.check().await
    }

    async fn seal(&self) -> Result<Option<String>, SandboxError> {
        self.backend.seal().await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.backend.check().await?;
        let record = self.new_record(spec, false).await?;
        if let Some((dir, _)) = self.find_run(&spec.run)? {
            let exists = io::ErrorKind::AlreadyExists.into();
            return Err(SandboxError::host("create", &dir.workspace(), exists));
        }
        self.discard_evidence(spec).await?;
        if spec.reuse == Reuse::Allowed
            && let Some(sandbox) = self.take_over(spec, &record).await?
        {
            return Ok(Box::new(sandbox));
        }
        self.sweep().await?;
        Ok(Box::new(self.create_named(spec, &record).await?))
    }

    async fn create_for_evidence(
        &self,
        spec: &SandboxSpec,
    ) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        if !B::EVIDENCE_APART {
            return Ok(None);
        }
        self.discard_evidence(spec).await?;
        let record = self.new_record(spec, true).await?;
        let sandbox = self.create_named(&evidence_spec(spec), &record).await?;
        Ok(Some(Box::new(sandbox)))
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        self.discard_evidence(spec).await?;
        let Some((dir, record)) = self.find_run(&spec.run)? else {
            return Ok(None);
        };
        let fits = self.backend.fingerprint(spec).await?.as_ref() == Some(&record.fingerprint);
        let owned = SandboxRecord {
            owner: self.this_owner()?,
            ..record.clone()
        };
        // Another process may be taking over or removing the sandbox of an owner that has ended.
        if !dir.claim(&record, &owned)? {
            return Ok(None);
        }
        if fits && let Some(sandbox) = self.backend.open(&dir, spec).await? {
            return Ok(Some(Box::new(sandbox)));
        }
        self.discard(&dir).await?;
        Ok(None)
    }

    async fn list(&self) -> Result<Vec<SandboxListing>, SandboxError> {
        let found = self.census().await?;
        Ok(found.into_iter().map(|found| found.listing).collect())
    }

    async fn attach(&self, id: &str) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let Some(found) = self.find(id).await? else {
            return Ok(None);
        };
        let attached = self.backend.attach(&found).await?;
        Ok(attached.map(|sandbox| -> Box<dyn Sandbox> { Box::new(sandbox) }))
    }

    async fn remove(&self, id: &str, scope: RemovalScope) -> Result<bool, SandboxError> {
        match self.find(id).await? {
            Some(found) => self.remove_found(&found, scope).await,
            None => Ok(false),
        }
    }

    async fn remove_abandoned_probes(&self) -> Result<(), SandboxError> {
        self.backend.remove_abandoned_probes().await
    }

    fn images(&self) -> Option<&dyn super::ProviderImages> {
        B::IMAGE_KIND.map(|_| self as &dyn super::ProviderImages)
    }
}

/// The spec of the sandbox for evidence beside that of the agent. It has a name of its own.
fn evidence_spec(spec: &SandboxSpec) -> SandboxSpec {
    let mut spec = spec.clone();
    spec.purpose.branch.push_str("/evidence");
    spec
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use tempfile::TempDir;

    use super::super::files::WorkspaceFiles;
    use super::super::{CredentialRoute, Enforced, Isolation, NetworkEnforcement, Purpose, SandboxFiles};
    use super::*;
    use crate::exec::{Command, Exit, OutputSink};

    /// Keeps the names of its running instances.
    #[derive(Default)]
    struct FakeBackend {
        running: Mutex<Vec<String>>,
        image: &'static str,
        /// Running orphans of other data directories.
        elsewhere: Mutex<Vec<SandboxDir>>,
    }

    struct FakeSandbox(SandboxDir, WorkspaceFiles);

    #[async_trait]
    impl Sandbox for FakeSandbox {
        fn id(&self) -> &'static str {
            "fake"
        }
        fn root(&self) -> &Path {
            self.1.root()
        }
        fn files(&self) -> &dyn SandboxFiles {
            &self.1
        }
        async fn exec(&self, _: &Command, _: &mut dyn OutputSink) -> Result<Exit, SandboxError> {
            Err(SandboxError::stopped("fake"))
        }
        async fn end_processes(&self) -> Result<(), SandboxError> {
            Ok(())
        }
        async fn start(&self) -> Result<(), SandboxError> {
            Ok(())
        }
        async fn stop(&self) -> Result<(), SandboxError> {
            Ok(())
        }
        async fn close(&self) -> Result<(), SandboxError> {
            self.0.remove().await
        }
    }

    fn sandbox(dir: &SandboxDir) -> FakeSandbox {
        let files = WorkspaceFiles::new(&dir.name(), "/work".into(), dir.workspace(), dir.staging());
        FakeSandbox(dir.clone(), files)
    }

    #[async_trait]
    impl WorkspaceBackend for FakeBackend {
        const NAME: &'static str = "fake";
        const EVIDENCE_APART: bool = true;
        type Sandbox = FakeSandbox;

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                isolation: Isolation::Container,
                network: NetworkEnforcement::Names,
                resources: Enforced::Yes,
                metering: Enforced::Yes,
                preview: false,
                credentials: CredentialRoute::Gateway,
            }
        }
        async fn check(&self) -> Result<(), SandboxError> {
            Ok(())
        }
        async fn fingerprint(&self, _spec: &SandboxSpec) -> Result<Option<String>, SandboxError> {
            Ok((!self.image.is_empty()).then(|| self.image.to_owned()))
        }
        async fn create(
            &self,
            dir: &SandboxDir,
            _spec: &SandboxSpec,
            _record: &SandboxRecord,
        ) -> Result<Option<FakeSandbox>, SandboxError> {
            let mut running = self.running.lock().unwrap();
            if running.contains(&dir.name()) {
                return Ok(None);
            }
            running.push(dir.name());
            Ok(Some(sandbox(dir)))
        }
        async fn open(
            &self,
            dir: &SandboxDir,
            _spec: &SandboxSpec,
        ) -> Result<Option<FakeSandbox>, SandboxError> {
            let is_running = self.running.lock().unwrap().contains(&dir.name());
            Ok(is_running.then(|| sandbox(dir)))
        }
        async fn attach(&self, found: &FoundSandbox) -> Result<Option<FakeSandbox>, SandboxError> {
            Ok(found.instance.as_ref().map(|_| sandbox(&found.dir)))
        }
        async fn instances(&self, dirs: &[SandboxDir]) -> Result<Vec<Instance>, SandboxError> {
            let running = self.running.lock().unwrap();
            let own = dirs.iter().filter(|dir| running.contains(&dir.name()));
            let elsewhere = self.elsewhere.lock().unwrap();
            let instances = own.chain(elsewhere.iter()).map(|dir| Instance {
                name: dir.name(),
                dir: dir.clone(),
                ids: vec![dir.name()],
                activity: SandboxActivity::Running,
                needs_sweep: true,
                image: None,
                created: None,
                creator: (None, Some(dead())),
            });
            Ok(instances.collect())
        }
        async fn remove_at(&self, dir: &SandboxDir) -> Result<(), SandboxError> {
            self.running.lock().unwrap().retain(|name| *name != dir.name());
            self.elsewhere.lock().unwrap().retain(|other| other != dir);
            Ok(())
        }
    }

    fn provider(base: &TempDir, image: &'static str) -> WorkspaceProvider<FakeBackend> {
        let backend = FakeBackend {
            image,
            ..FakeBackend::default()
        };
        WorkspaceProvider::new(backend, base.path().to_owned(), "here")
    }

    fn spec(run: &str, task: &str) -> SandboxSpec {
        SandboxSpec {
            image: Some("image".to_owned()),
            purpose: Purpose {
                agent: "agent".to_owned(),
                branch: "branch".to_owned(),
                task: task.to_owned(),
            },
            ..SandboxSpec::unrestricted(RunId::parse(run).unwrap())
        }
    }

    /// Lets a sandbox look like that of a process that has ended.
    fn orphan(provider: &WorkspaceProvider<FakeBackend>, run: &str) {
        let (dir, record) = provider.find_run(&RunId::parse(run).unwrap()).unwrap().unwrap();
        let owner = dead();
        dir.record_owner(&SandboxRecord { owner, ..record }).unwrap();
    }

    /// A process that has ended.
    fn dead() -> Owner {
        let dead = format!("{{\"host\":\"here\",\"pid\":{},\"started\":null}}", u32::MAX / 2);
        serde_json::from_str(&dead).unwrap()
    }

    #[tokio::test]
    async fn an_orphan_of_another_data_directory_is_listed_and_not_swept() {
        let (base, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let provider = provider(&base, "v1");
        let foreign = SandboxDir::new(other.path(), "foreign");
        provider.backend.elsewhere.lock().unwrap().push(foreign);
        provider.create(&spec("r2345", "one")).await.unwrap();
        let listed = provider.list().await.unwrap();
        let own: Vec<bool> = listed.iter().map(|one| one.is_own).collect();
        assert_eq!(own, [true, false], "{listed:?}");
        assert!(listed[1].standing.is_orphan());
        assert!(provider.remove("foreign", RemovalScope::Orphans).await.unwrap());
    }

    #[tokio::test]
    async fn a_second_sandbox_of_a_branch_gets_another_name() {
        let base = TempDir::new().unwrap();
        let provider = provider(&base, "v1");
        provider.create(&spec("r2345", "one")).await.unwrap();
        provider.create(&spec("r2346", "two")).await.unwrap();
        let listed = provider.list().await.unwrap();
        assert_eq!(listed.len(), 2);
        assert!(listed.iter().all(|one| one.standing == SandboxOwnership::InUse));
        assert!(provider.create(&spec("r2345", "one")).await.is_err());
    }

    #[tokio::test]
    async fn an_orphan_of_the_same_task_is_taken_over_and_of_another_swept() {
        let base = TempDir::new().unwrap();
        let provider = provider(&base, "v1");
        provider.create(&spec("r2345", "one")).await.unwrap();
        orphan(&provider, "r2345");
        provider.create(&spec("r2346", "one")).await.unwrap();
        let listed = provider.list().await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].run, Some(RunId::parse("r2346").unwrap()));
        orphan(&provider, "r2346");
        provider.create(&spec("r2347", "two")).await.unwrap();
        let listed = provider.list().await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].run, Some(RunId::parse("r2347").unwrap()));
    }

    #[tokio::test]
    async fn a_sandbox_in_use_is_removed_only_by_name() {
        let base = TempDir::new().unwrap();
        let provider = provider(&base, "v1");
        provider.create(&spec("r2345", "one")).await.unwrap();
        let id = provider.list().await.unwrap()[0].id.clone();
        assert!(!provider.remove(&id, RemovalScope::Orphans).await.unwrap());
        assert!(provider.attach(&id).await.unwrap().is_some());
        assert!(provider.remove(&id, RemovalScope::Any).await.unwrap());
        assert!(provider.list().await.unwrap().is_empty());
        assert!(!provider.remove(&id, RemovalScope::Any).await.unwrap());
    }

    #[tokio::test]
    async fn a_sandbox_with_another_fingerprint_is_not_reopened() {
        let base = TempDir::new().unwrap();
        let first = provider(&base, "v1");
        first.create(&spec("r2345", "one")).await.unwrap();
        assert!(first.reopen(&spec("r2345", "one")).await.unwrap().is_some());
        let second = provider(&base, "v2");
        assert!(second.reopen(&spec("r2345", "one")).await.unwrap().is_none());
        assert!(SandboxDir::all(base.path()).unwrap().is_empty());
    }

    #[tokio::test]
    async fn evidence_gets_a_sandbox_of_its_own_that_is_never_reused() {
        let base = TempDir::new().unwrap();
        let provider = provider(&base, "v1");
        let spec = spec("r2345", "one");
        provider.create(&spec).await.unwrap();
        for _ in 0..2 {
            let made = provider.create_for_evidence(&spec).await.unwrap();
            assert!(made.is_some());
            assert_eq!(provider.list().await.unwrap().len(), 2);
        }
        let run = Some(spec.run.clone());
        let listed = provider.list().await.unwrap();
        assert!(listed.iter().all(|one| one.run == run), "{listed:?}");
        assert!(listed[1].id.contains("evidence"), "{listed:?}");
        // The engine may keep it although its directory is gone.
        let left = listed[1].id.clone();
        SandboxDir::new(base.path(), &left).remove().await.unwrap();
        let is_left = || provider.backend.running.lock().unwrap().contains(&left);
        assert!(is_left());
        assert!(provider.reopen(&spec).await.unwrap().is_some());
        assert!(!is_left());
        let listed = provider.list().await.unwrap();
        assert!(
            listed.len() == 1 && !listed[0].id.contains("evidence"),
            "{listed:?}"
        );
    }

    #[tokio::test]
    async fn a_missing_image_is_named() {
        let base = TempDir::new().unwrap();
        let created = provider(&base, "").create(&spec("r2345", "one")).await;
        let error = created.err().unwrap();
        assert_eq!(error.to_string(), "the image `image` does not exist");
    }
}
