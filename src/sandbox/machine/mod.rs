//! Sandboxes that are machines, made by a program of this machine: Docker Sandboxes and Tart. What differs between the
//! two is their driver; whose a machine is, its workspace and its commands are the same.

mod driver;
mod opener;
mod plain;
mod sandbox;
pub(super) mod tool;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;

pub(super) use self::driver::{Driver, Plan};

use self::opener::ByProgram;
use self::plain::Plain;
use self::sandbox::MachineSandbox;
use super::files::Files;
use super::guest::{Guest, arch};
use super::life::Life;
use super::name::names;
use super::owner::Owner;
use super::place::{Claim, Place, Record};
use super::shelf::Shelf;
use super::warm::Warm;
use super::{
    Activity, Capabilities, Listed, Provider, ReadOnlyMount, Removable, Resources, Sandbox, SandboxError,
    SandboxSpec, Standing,
};
use crate::engine::Digest;
use crate::exec::Host;
use crate::network::Policy;

/// How many digits of a hash tell what two machines were made from.
const FINGERPRINT_DIGITS: usize = 32;

/// Where machines are kept on this one.
#[derive(Clone, Debug)]
pub struct MachineOptions {
    /// The directory below which each sandbox gets one of its own.
    pub base: PathBuf,
    /// The directory for the guest's file, which every machine sees.
    pub guest_dir: PathBuf,
    /// Starts the program that makes machines.
    pub host: Host,
    /// What this machine is called.
    pub machine: String,
}

/// Makes sandboxes that are machines of one program.
#[derive(Debug)]
pub(super) struct MachineProvider<D> {
    driver: D,
    options: MachineOptions,
    owner: Owner,
}

/// A sandbox that was found.
struct Found {
    listed: Listed,
    place: Place,
    record: Option<Record>,
}

impl<D: Driver> MachineProvider<D> {
    pub(super) fn new(driver: D, options: MachineOptions) -> Self {
        Self {
            driver,
            owner: Owner::this_process(&options.machine),
            options,
        }
    }

    fn guest(&self) -> Result<Guest, SandboxError> {
        let dir = &self.options.guest_dir;
        Guest::put(dir, arch()).map_err(|source| SandboxError::Host {
            operation: "write the guest to",
            path: dir.clone(),
            source,
        })
    }

    fn record(&self, spec: &SandboxSpec) -> Record {
        Record {
            run: spec.run.clone(),
            task: spec.purpose.task.clone(),
            fingerprint: fingerprint(spec),
            owner: self.owner.clone(),
        }
    }

    /// The place of a run, and what is written down about it.
    fn place_of(&self, spec: &SandboxSpec) -> Result<Option<(Place, Record)>, SandboxError> {
        let places = self.places()?.into_iter();
        let mut known = places.filter_map(|place| Some((place.clone(), place.record()?)));
        Ok(known.find(|(_, record)| record.run == spec.run))
    }

    fn places(&self) -> Result<Vec<Place>, SandboxError> {
        Place::all(&self.options.base).map_err(|source| SandboxError::Host {
            operation: "list",
            path: self.options.base.clone(),
            source,
        })
    }

    /// Makes a machine under the first of its names that nobody has.
    async fn make(&self, spec: &SandboxSpec) -> Result<Plan, SandboxError> {
        let taken = self.driver.all().await?;
        let free = names(spec, &self.options.base).into_iter().find_map(|name| {
            let place = Place::of(&self.options.base, &name);
            if taken.contains_key(&name) {
                return None;
            }
            match place.make(&self.record(spec), None) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                made => Some(
                    made.map(|()| place.clone())
                        .map_err(|source| on_host("make", &place, source)),
                ),
            }
        });
        let place = free.ok_or_else(|| SandboxError::Unavailable {
            provider: D::NAME,
            reason: "no name is free".to_owned(),
        })??;
        let plan = Plan {
            place,
            spec: spec.clone(),
            guest: self.guest()?,
        };
        match self.driver.make(&plan).await {
            Ok(()) => Ok(plan),
            Err(error) => {
                self.discard(&plan.place).await?;
                Err(error)
            }
        }
    }

    async fn discard(&self, place: &Place) -> Result<(), SandboxError> {
        self.driver.remove(&place.name()).await?;
        place.remove().map_err(|source| on_host("remove", place, source))
    }

    /// The sandbox of a machine that runs.
    async fn open(&self, plan: Plan) -> Result<Box<dyn Sandbox>, SandboxError> {
        let name = plan.name();
        let root = self.driver.root(&plan.place);
        let exec = self.driver.exec(&name);
        let path = exec.clone().args(["/bin/sh", "-c", "printf %s \"$PATH\""]);
        let env = variables(tool::run(&self.options.host, path).await?, &root, &plan.spec);
        let opener = |guest: &Path, grace: Duration| ByProgram {
            host: self.options.host.clone(),
            exec: exec.clone(),
            guest: self.driver.guest(guest),
            sandbox: name.clone(),
            env: env.clone(),
            root: root.clone(),
            grace,
        };
        let grace = plan.spec.completion_grace;
        let warm = match &plan.guest {
            Guest::Here(file) => Warm::new(opener(file, grace)),
            Guest::Missing(reason) => Warm::never(opener(Path::new(""), grace), reason),
        };
        Ok(Box::new(MachineSandbox {
            driver: self.driver.clone(),
            shelf: Shelf {
                sandbox: name.clone(),
                root: root.clone(),
                files: Files::new(&plan.place.workspace(), &plan.place.staging()),
            },
            plain: Plain {
                host: self.options.host.clone(),
                exec: exec.clone(),
                root: root.clone(),
                env: env.clone(),
            },
            life: Life::running(),
            warm,
            plan,
            name,
        }))
    }

    /// All sandboxes: what is written down about them here, and what the program says of their machines. Machines of
    /// which nothing is written down here are not ralph's.
    async fn census(&self) -> Result<Vec<Found>, SandboxError> {
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

    async fn remove_found(&self, found: &Found, removable: Removable) -> Result<bool, SandboxError> {
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

    /// Removes what a process left that was killed: whoever ends in peace puts its sandbox to rest.
    async fn sweep(&self) -> Result<(), SandboxError> {
        for found in self.census().await? {
            if found.listed.activity != Activity::Running {
                continue;
            }
            if let Err(error) = self.remove_found(&found, Removable::Orphans).await {
                tracing::warn!(sandbox = found.listed.id, %error, "an orphan could not be removed");
            }
        }
        Ok(())
    }
}

#[async_trait]
impl<D: Driver> Provider for MachineProvider<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn capabilities(&self) -> Capabilities {
        self.driver.capabilities()
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        self.driver.objection(policy)
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.driver.check().await
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        self.driver.check().await?;
        if let Some((place, _)) = self.place_of(spec)? {
            return Err(on_host("make", &place, io::ErrorKind::AlreadyExists.into()));
        }
        self.sweep().await?;
        let plan = self.make(spec).await?;
        self.open(plan).await
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let Some((place, record)) = self.place_of(spec)? else {
            return Ok(None);
        };
        let machine = self.driver.all().await?.get(&place.name()).copied();
        if machine.is_none() || record.fingerprint != fingerprint(spec) {
            self.discard(&place).await?;
            return Ok(None);
        }
        place
            .write(&self.record(spec))
            .map_err(|source| on_host("take over", &place, source))?;
        let plan = Plan {
            place,
            spec: spec.clone(),
            guest: self.guest()?,
        };
        if machine != Some(Activity::Running) {
            self.driver.start(&plan).await?;
        }
        self.open(plan).await.map(Some)
    }

    async fn list(&self) -> Result<Vec<Listed>, SandboxError> {
        Ok(self
            .census()
            .await?
            .into_iter()
            .map(|found| found.listed)
            .collect())
    }

    async fn attach(&self, id: &str) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let found = self
            .census()
            .await?
            .into_iter()
            .find(|found| found.listed.id == id);
        match found {
            Some(Found {
                listed:
                    Listed {
                        activity: Activity::Running,
                        ..
                    },
                place,
                record: Some(record),
            }) => {
                let plan = Plan {
                    place,
                    spec: SandboxSpec::unrestricted(record.run),
                    guest: self.guest()?,
                };
                self.open(plan).await.map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    async fn remove(&self, id: &str, removable: Removable) -> Result<bool, SandboxError> {
        let found = self
            .census()
            .await?
            .into_iter()
            .find(|found| found.listed.id == id);
        match found {
            Some(found) => self.remove_found(&found, removable).await,
            None => Ok(false),
        }
    }
}

/// What would have to be made anew if it were different.
fn fingerprint(spec: &SandboxSpec) -> String {
    #[derive(Serialize)]
    struct Parts<'a> {
        guest: u64,
        image: Option<&'a str>,
        network: Vec<String>,
        mounts: &'a [ReadOnlyMount],
        resources: &'a Resources,
    }
    let parts = Parts {
        guest: crate::guest::VERSION,
        image: spec.image.as_deref(),
        network: spec.network.lines(),
        mounts: &spec.mounts,
        resources: &spec.resources,
    };
    let json = serde_json::to_vec(&parts).unwrap_or_default();
    Digest::of(&json).hex()[..FINGERPRINT_DIGITS].to_owned()
}

fn variables(path: String, root: &Path, spec: &SandboxSpec) -> BTreeMap<String, String> {
    let own = [
        ("PATH", path),
        ("HOME", root.join("home").to_string_lossy().into_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
    ];
    let mut env: BTreeMap<String, String> = own.map(|(name, value)| (name.to_owned(), value)).into();
    env.extend(spec.env.clone());
    env
}

fn on_host(operation: &'static str, place: &Place, source: io::Error) -> SandboxError {
    SandboxError::Host {
        operation,
        path: place.workspace(),
        source,
    }
}
