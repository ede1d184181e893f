//! Providers whose sandboxes are VMs that a host CLI creates: `docker-sandbox` and `tart`. They differ in their driver;
//! ownership, workspace and commands are the same.

mod census;
mod driver;
mod exec;
mod gateway;
pub(super) mod host_cli;
mod network;
mod sandbox;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

pub(super) use self::driver::{VmDriver, VmPlan, limit_flags};
pub(super) use self::gateway::VmGateway;
pub(super) use self::network::VmNetwork;

use self::census::Found;
use self::exec::VmExec;
use self::sandbox::VmSandbox;
use super::files::Files;
use super::guest::{Guest, arch};
use super::life::Life;
use super::name::names;
use super::owner::Owner;
use super::place::{Place, Record};
use super::session::Surroundings;
use super::shelf::Shelf;
use super::warm::Warm;
use super::{
    Activity, Capabilities, Listed, Provider, Removable, Reuse, Sandbox, SandboxError, SandboxSpec,
    fingerprint,
};
use crate::exec::Host;
use crate::network::Policy;

/// Variables of the VM that commands inherit: program path, user, proxy and certificates.
const INHERITED: [&str; 14] = [
    "PATH",
    "USER",
    "LOGNAME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];

/// The options that the providers of VMs share.
#[derive(Clone, Debug)]
pub struct VmOptions {
    /// The host directory in which each sandbox gets a directory of its own.
    pub base: PathBuf,
    /// The host directory for the guest, which is shared with every VM.
    pub guest_dir: PathBuf,
    /// Starts the host CLI.
    pub host: Host,
    /// The name of this host, as part of the owner of sandboxes.
    pub host_name: String,
}

/// Creates VMs with one host CLI.
#[derive(Debug)]
pub(super) struct VmProvider<D> {
    driver: D,
    options: VmOptions,
    owner: Owner,
}

impl<D: VmDriver> VmProvider<D> {
    pub(super) fn new(driver: D, options: VmOptions) -> Self {
        Self {
            driver,
            owner: Owner::this_process(&options.host_name),
            options,
        }
    }

    fn guest(&self) -> Result<Guest, SandboxError> {
        let dir = &self.options.guest_dir;
        Guest::put(dir, arch()).map_err(|source| SandboxError::host("write the guest to", dir, source))
    }

    fn record(&self, spec: &SandboxSpec) -> Record {
        Record {
            run: spec.run.clone(),
            task: spec.purpose.task.clone(),
            fingerprint: fingerprint(spec),
            owner: self.owner.clone(),
        }
    }

    /// The directory of a run's sandbox, and its record.
    fn place_of(&self, spec: &SandboxSpec) -> Result<Option<(Place, Record)>, SandboxError> {
        let mut known = self.known()?.into_iter();
        Ok(known.find(|(_, record)| record.run == spec.run))
    }

    /// All directories with a record.
    fn known(&self) -> Result<Vec<(Place, Record)>, SandboxError> {
        let places = self.places()?.into_iter();
        Ok(places
            .filter_map(|place| Some((place.clone(), place.record()?)))
            .collect())
    }

    fn places(&self) -> Result<Vec<Place>, SandboxError> {
        Place::all(&self.options.base)
            .map_err(|source| SandboxError::host("list", &self.options.base, source))
    }

    /// Creates a VM under the first free name. Removes what is left after an error.
    async fn make(&self, spec: &SandboxSpec) -> Result<VmSandbox<D>, SandboxError> {
        let place = self.free_place(spec).await?;
        let made = async {
            let plan = VmPlan {
                place: place.clone(),
                spec: spec.clone(),
                guest: self.guest()?,
            };
            self.driver.create(&plan).await?;
            let network = self.driver.network(&plan).await?;
            let sandbox = self.open(plan, network).await?;
            sandbox.verify_network().await?;
            place.finish().map_err(|source| on_host("make", &place, source))?;
            Ok(sandbox)
        };
        let made = made.await;
        if made.is_err() {
            self.discard(&place).await?;
        }
        made
    }

    async fn free_place(&self, spec: &SandboxSpec) -> Result<Place, SandboxError> {
        let taken = self.driver.list().await?;
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
        free.ok_or_else(|| SandboxError::unavailable(D::NAME, "no name is free"))?
    }

    async fn discard(&self, place: &Place) -> Result<(), SandboxError> {
        self.driver.remove(&place.name()).await?;
        place.remove().map_err(|source| on_host("remove", place, source))
    }

    /// Takes over an orphan of the same task that was created from the same spec.
    async fn take_over(&self, spec: &SandboxSpec) -> Result<Option<VmSandbox<D>>, SandboxError> {
        let vms = self.driver.list().await?;
        for (place, record) in self.known()? {
            let fits = record.task == spec.purpose.task && record.fingerprint == fingerprint(spec);
            let free = record.owner.is_dead(&self.owner) && place.is_finished();
            let Some(activity) = vms.get(&place.name()).filter(|_| fits && free) else {
                continue;
            };
            let taken = place.claim(&record, &self.record(spec));
            if !taken.map_err(|source| on_host("take over", &place, source))? {
                continue;
            }
            match self.resume(&place, spec, *activity).await {
                Ok(sandbox) => return Ok(Some(sandbox)),
                Err(error) => {
                    tracing::warn!(sandbox = place.name(), %error, "cannot reuse a sandbox");
                    self.discard(&place).await?;
                }
            }
        }
        Ok(None)
    }

    /// Starts an existing VM if it does not run, and verifies its network.
    async fn resume(
        &self,
        place: &Place,
        spec: &SandboxSpec,
        activity: Activity,
    ) -> Result<VmSandbox<D>, SandboxError> {
        let plan = VmPlan {
            place: place.clone(),
            spec: spec.clone(),
            guest: self.guest()?,
        };
        if activity != Activity::Running {
            self.driver.start(&plan).await?;
        }
        let network = self.driver.network(&plan).await?;
        let sandbox = self.open(plan, network).await?;
        sandbox.verify_network().await?;
        Ok(sandbox)
    }

    /// The sandbox of a running VM.
    async fn open(&self, plan: VmPlan, network: VmNetwork) -> Result<VmSandbox<D>, SandboxError> {
        let name = plan.name();
        let root = self.driver.root(&plan.place);
        let exec = self.driver.exec(&name);
        let print = exec.clone().args(["/bin/sh", "-c", &print_variables(&INHERITED)]);
        let printed = host_cli::run(&self.options.host, print).await?;
        let exec = VmExec {
            host: self.options.host.clone(),
            exec,
            guest: match &plan.guest {
                Guest::Here(file) => self.driver.guest(file),
                Guest::Missing(_) => PathBuf::new(),
            },
            surroundings: Surroundings {
                sandbox: name.clone(),
                env: variables(&printed, &network, &root, &plan.spec),
                dir: root.clone(),
                grace: plan.spec.completion_grace,
            },
        };
        let warm = match &plan.guest {
            Guest::Here(_) => Warm::new(exec.clone()),
            Guest::Missing(reason) => Warm::never(exec.clone(), reason),
        };
        Ok(VmSandbox {
            driver: self.driver.clone(),
            shelf: Shelf {
                sandbox: name.clone(),
                root,
                files: Files::new(&plan.place.workspace(), &plan.place.staging()),
            },
            exec,
            life: Life::running(),
            network,
            warm,
            plan,
            name,
        })
    }
}

#[async_trait]
impl<D: VmDriver> Provider for VmProvider<D> {
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
        let found = match spec.reuse {
            Reuse::Allowed => self.take_over(spec).await?,
            Reuse::Never => None,
        };
        if let Some(found) = found {
            return Ok(Box::new(found));
        }
        self.sweep().await?;
        Ok(Box::new(self.make(spec).await?))
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let Some((place, record)) = self.place_of(spec)? else {
            return Ok(None);
        };
        let activity = self.driver.list().await?.get(&place.name()).copied();
        let fits = record.fingerprint == fingerprint(spec) && place.is_finished();
        let Some(activity) = activity.filter(|_| fits) else {
            self.discard(&place).await?;
            return Ok(None);
        };
        place
            .write(&self.record(spec))
            .map_err(|source| on_host("take over", &place, source))?;
        Ok(Some(Box::new(self.resume(&place, spec, activity).await?)))
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
                let plan = VmPlan {
                    place,
                    spec: SandboxSpec::unrestricted(record.run),
                    guest: self.guest()?,
                };
                Ok(Some(Box::new(self.open(plan, VmNetwork::Attached).await?)))
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

/// A hash of what a VM is created from. A VM with another hash is not reused.
fn fingerprint(spec: &SandboxSpec) -> String {
    fingerprint::of(&(
        crate::guest::VERSION,
        &spec.image,
        spec.network.lines(),
        &spec.mounts,
        &spec.resources,
    ))
}

/// A shell command that prints those of these variables that are set.
fn print_variables(names: &[&str]) -> String {
    let names = names.join(" ");
    format!(
        "for name in {names}; do eval \"value=\\${{$name-}}\"; [ -z \"$value\" ] || echo \"$name=$value\"; done"
    )
}

/// The environment of commands: variables that the VM printed, ralph's own, and those of the spec.
fn variables(
    printed: &str,
    network: &VmNetwork,
    root: &Path,
    spec: &SandboxSpec,
) -> BTreeMap<String, String> {
    let own = [
        ("HOME", root.join("home").to_string_lossy().into_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
    ];
    let inherited = printed.lines().filter_map(|line| line.split_once('='));
    let mut env: BTreeMap<String, String> = inherited
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    env.extend(own.map(|(name, value)| (name.to_owned(), value)));
    env.extend(network.variables());
    env.extend(spec.env.clone());
    env
}

fn on_host(operation: &'static str, place: &Place, source: io::Error) -> SandboxError {
    SandboxError::host(operation, &place.workspace(), source)
}
