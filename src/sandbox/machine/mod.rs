//! Sandboxes that are machines, made by a program of this machine: Docker Sandboxes and Tart. What differs between the
//! two is their driver; whose a machine is, its workspace and its commands are the same.

mod border;
mod census;
mod driver;
mod opener;
mod outlet;
mod plain;
mod sandbox;
pub(super) mod tool;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

pub(super) use self::border::Border;
pub(super) use self::driver::{Driver, Plan};
pub(super) use self::outlet::Outlet;

use self::census::Found;
use self::opener::ByProgram;
use self::plain::Plain;
use self::sandbox::MachineSandbox;
use super::files::Files;
use super::guest::{Guest, arch};
use super::life::Life;
use super::name::names;
use super::owner::Owner;
use super::place::{Place, Record};
use super::shelf::Shelf;
use super::warm::Warm;
use super::{
    Activity, Capabilities, Listed, Provider, Removable, Reuse, Sandbox, SandboxError, SandboxSpec,
    fingerprint,
};
use crate::exec::Host;
use crate::network::Policy;

/// Variables of a machine that commands in it keep: where programs are, who they run as, and by which proxy and whose
/// certificates they reach others.
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

    /// The place of a run, and what is written down about it.
    fn place_of(&self, spec: &SandboxSpec) -> Result<Option<(Place, Record)>, SandboxError> {
        let mut known = self.known()?.into_iter();
        Ok(known.find(|(_, record)| record.run == spec.run))
    }

    /// The places of which something is written down.
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

    /// Makes a machine under the first of its names that nobody has. Nothing is left of one that came to nothing.
    async fn make(&self, spec: &SandboxSpec) -> Result<MachineSandbox<D>, SandboxError> {
        let place = self.free_place(spec).await?;
        let made = async {
            let plan = Plan {
                place: place.clone(),
                spec: spec.clone(),
                guest: self.guest()?,
            };
            self.driver.make(&plan).await?;
            let border = self.driver.border(&plan).await?;
            let sandbox = self.open(plan, border).await?;
            sandbox.prove().await?;
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
        free.ok_or_else(|| SandboxError::unavailable(D::NAME, "no name is free"))?
    }

    async fn discard(&self, place: &Place) -> Result<(), SandboxError> {
        self.driver.remove(&place.name()).await?;
        place.remove().map_err(|source| on_host("remove", place, source))
    }

    /// Takes over what an earlier run of the same task left, made from the same, in nobody's hands.
    async fn take_over(&self, spec: &SandboxSpec) -> Result<Option<MachineSandbox<D>>, SandboxError> {
        let machines = self.driver.all().await?;
        for (place, record) in self.known()? {
            let fits = record.task == spec.purpose.task && record.fingerprint == fingerprint(spec);
            let free = record.owner.is_dead(&self.owner) && place.is_finished();
            let Some(machine) = machines.get(&place.name()).filter(|_| fits && free) else {
                continue;
            };
            let taken = place.claim(&record, &self.record(spec));
            if !taken.map_err(|source| on_host("take over", &place, source))? {
                continue;
            }
            match self.resume(&place, spec, *machine).await {
                Ok(sandbox) => return Ok(Some(sandbox)),
                Err(error) => {
                    tracing::warn!(sandbox = place.name(), %error, "a sandbox could not be used again");
                    self.discard(&place).await?;
                }
            }
        }
        Ok(None)
    }

    /// The sandbox of a machine that is there, started where it does not run, and shown to be kept from the network.
    async fn resume(
        &self,
        place: &Place,
        spec: &SandboxSpec,
        machine: Activity,
    ) -> Result<MachineSandbox<D>, SandboxError> {
        let plan = Plan {
            place: place.clone(),
            spec: spec.clone(),
            guest: self.guest()?,
        };
        if machine != Activity::Running {
            self.driver.start(&plan).await?;
        }
        let border = self.driver.border(&plan).await?;
        let sandbox = self.open(plan, border).await?;
        sandbox.prove().await?;
        Ok(sandbox)
    }

    /// The sandbox of a machine that runs.
    async fn open(&self, plan: Plan, border: Border) -> Result<MachineSandbox<D>, SandboxError> {
        let name = plan.name();
        let root = self.driver.root(&plan.place);
        let exec = self.driver.exec(&name);
        let told = exec.clone().args(["/bin/sh", "-c", &tell(&INHERITED)]);
        let told = tool::run(&self.options.host, told).await?;
        let env = variables(&told, &border, &root, &plan.spec);
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
        Ok(MachineSandbox {
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
            border,
            warm,
            plan,
            name,
        })
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
        let machine = self.driver.all().await?.get(&place.name()).copied();
        let fits = record.fingerprint == fingerprint(spec) && place.is_finished();
        let Some(machine) = machine.filter(|_| fits) else {
            self.discard(&place).await?;
            return Ok(None);
        };
        place
            .write(&self.record(spec))
            .map_err(|source| on_host("take over", &place, source))?;
        Ok(Some(Box::new(self.resume(&place, spec, machine).await?)))
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
                Ok(Some(Box::new(self.open(plan, Border::Theirs).await?)))
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
    fingerprint::of(&(
        crate::guest::VERSION,
        &spec.image,
        spec.network.lines(),
        &spec.mounts,
        &spec.resources,
    ))
}

/// A line by which a shell tells those of these variables that it has.
fn tell(names: &[&str]) -> String {
    let names = names.join(" ");
    format!(
        "for name in {names}; do eval \"value=\\${{$name-}}\"; [ -z \"$value\" ] || echo \"$name=$value\"; done"
    )
}

/// What every command sees: the machine's own, where that is `told`, ours, and what the spec gives.
fn variables(told: &str, border: &Border, root: &Path, spec: &SandboxSpec) -> BTreeMap<String, String> {
    let own = [
        ("HOME", root.join("home").to_string_lossy().into_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
    ];
    let told = told.lines().filter_map(|line| line.split_once('='));
    let mut env: BTreeMap<String, String> = told
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    env.extend(own.map(|(name, value)| (name.to_owned(), value)));
    env.extend(border.variables());
    env.extend(spec.env.clone());
    env
}

fn on_host(operation: &'static str, place: &Place, source: io::Error) -> SandboxError {
    SandboxError::host(operation, &place.workspace(), source)
}
