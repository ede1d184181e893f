//! The `daytona` provider: sandboxes at Daytona, through its REST API.
//!
//! The host stores nothing about a sandbox: its owner is in its labels, so that every host with the key can find it.
//! Daytona stops a sandbox that is idle, and removes it a week later, also if this process is killed.

mod api;
mod client;
mod error;
mod files;
mod host;
mod images;
mod labels;
mod options;
mod policy;
mod prepare;
mod sandbox;
mod secrets;
mod session_exec;
mod signature;
mod size;
mod snapshot;
mod socket;
mod storage;
mod terminal;
mod toolbox;
mod wire;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

pub use self::host::{DaytonaHost, DaytonaHostPlan};
pub use self::options::{DaytonaOptions, DaytonaPrices, DaytonaProgress, DaytonaSecret};

use self::api::DaytonaApi;
use self::client::DaytonaClient;
use self::error::DaytonaError;
use self::labels::DaytonaLabels;
use self::size::DaytonaSize;
use self::wire::{DaytonaPhase, DaytonaSandboxInfo};
use super::error::warn_not_removed;
use super::name::names;
use super::owner::Owner;
use super::{
    Capabilities, CredentialRoute, Enforced, HourlyCost, Isolation, NetworkEnforcement, Provider,
    ProviderImages, RemovalScope, Sandbox, SandboxActivity, SandboxError, SandboxListing, SandboxOwnership,
    SandboxSpec,
};
use crate::network::Policy;

const NAME: &str = "daytona";
const SET_KEY: &str =
    "create a key in Daytona's dashboard, and put it into `.env` or the environment as `DAYTONA_API_KEY`";

/// Daytona stops a sandbox after this many idle minutes, and removes it after this many more.
const STOP_MINUTES: u32 = 15;
const REMOVE_MINUTES: u32 = 7 * 24 * 60;

/// Creates sandboxes at Daytona. It connects with the first operation.
#[derive(Debug)]
pub struct DaytonaProvider {
    options: DaytonaOptions,
    owner: Owner,
    api: OnceCell<DaytonaApi>,
}

impl DaytonaProvider {
    /// Creates the provider. Does not connect.
    #[must_use]
    pub fn new(options: DaytonaOptions) -> Self {
        Self {
            owner: Owner::this_process(&options.host_name),
            options,
            api: OnceCell::new(),
        }
    }

    async fn api(&self) -> Result<&DaytonaApi, SandboxError> {
        let connect = || async {
            let options = &self.options;
            let key = options.key.clone();
            let key = key.ok_or_else(|| {
                SandboxError::unavailable(NAME, "DAYTONA_API_KEY is not set").with_hint(Some(SET_KEY))
            })?;
            Ok(DaytonaApi {
                client: DaytonaClient::new(&options.api_url, key, options.read_timeout)?,
                progress: options.progress.clone(),
                clock: options.clock.clone(),
            })
        };
        self.api.get_or_try_init(connect).await
    }

    /// The name of a run's sandbox, which is unique in the organisation.
    fn sandbox_name(&self, spec: &SandboxSpec) -> String {
        let DaytonaOptions {
            host_name, data_dir, ..
        } = &self.options;
        let mut base = OsString::from(host_name);
        base.push(data_dir);
        let [_, own] = names(spec, Path::new(&base));
        own
    }

    fn labels(&self, spec: &SandboxSpec) -> DaytonaLabels {
        let (name, secrets) = (self.sandbox_name(spec), self.options.secrets.iter());
        DaytonaLabels {
            run: spec.run.clone(),
            owner: self.owner.clone(),
            fingerprint: labels::fingerprint(spec, &self.options),
            secrets: secrets.map(|one| secrets::vault_name(&name, one)).collect(),
        }
    }

    /// The body of the request that creates a sandbox. It starts from a Dockerfile that Daytona builds, or from a snapshot,
    /// which defines the resources.
    async fn request(&self, spec: &SandboxSpec) -> Result<Value, SandboxError> {
        let (name, options) = (self.sandbox_name(spec), &self.options);
        if let Some(mount) = spec.mounts.first() {
            let source = mount.source.display();
            let reason = format!("`{source}` is on the host, the sandboxes are remote");
            let operation = "mount host files into its sandboxes";
            return Err(SandboxError::unsupported(NAME, operation, reason));
        }
        let domains = policy::allowed_domains(&spec.network)
            .map_err(|reason| SandboxError::unsupported(NAME, "enforce the network policy", reason))?;
        let (snapshot, size) = if options.dockerfile.is_some() {
            (None, size::size(&spec.resources))
        } else {
            let snapshot = snapshot::ensure(self.api().await?, spec, options.records.as_ref()).await;
            let snapshot = snapshot.map_err(|error| error.for_sandbox(&name))?;
            (snapshot, DaytonaSize::default())
        };
        Ok(json!({
            "name": name,
            "snapshot": snapshot,
            "buildInfo": options.dockerfile.as_ref().map(|text| json!({ "dockerfileContent": text })),
            "cpu": size.cpu,
            "memory": size.memory,
            "disk": size.disk,
            "env": spec.env,
            "secrets": secrets::to_request(&name, &options.secrets),
            "labels": self.labels(spec).to_map(),
            "networkBlockAll": domains.as_ref().filter(|names| names.is_empty()).map(|_| true),
            "domainAllowList": domains.filter(|names| !names.is_empty()).map(|names| names.join(",")),
            "target": options.target,
            "autoStopInterval": STOP_MINUTES,
            "autoDeleteInterval": REMOVE_MINUTES,
        }))
    }

    /// All sandboxes of ralph, also those of other hosts.
    async fn census(&self) -> Result<Vec<(DaytonaSandboxInfo, SandboxListing)>, SandboxError> {
        let filter = [("labels", labels::COMMON_LABEL)];
        let found: Vec<DaytonaSandboxInfo> = self.api().await?.list("sandbox", &filter).await?;
        let listed = found.into_iter().filter_map(|info| {
            let listed = self.listed(&info)?;
            Some((info, listed))
        });
        let mut listed: Vec<(DaytonaSandboxInfo, SandboxListing)> = listed.collect();
        listed.sort_by(|one, other| one.1.id.cmp(&other.1.id));
        Ok(listed)
    }

    async fn find(&self, id: &str) -> Result<Option<(DaytonaSandboxInfo, SandboxListing)>, SandboxError> {
        let mut census = self.census().await?.into_iter();
        Ok(census.find(|(_, listed)| listed.id == id))
    }

    fn listed(&self, info: &DaytonaSandboxInfo) -> Option<SandboxListing> {
        let labels = DaytonaLabels::parse(&info.labels)?;
        Some(SandboxListing {
            id: info.name.clone(),
            provider: NAME,
            is_own: true,
            run: Some(labels.run),
            activity: match info.phase() {
                DaytonaPhase::Started | DaytonaPhase::Changing => SandboxActivity::Running,
                DaytonaPhase::Stopped | DaytonaPhase::Failed => SandboxActivity::Stopped,
                DaytonaPhase::Removed => return None,
            },
            standing: if labels.owner.is_dead(&self.owner) {
                SandboxOwnership::OwnerEnded
            } else {
                SandboxOwnership::InUse
            },
            owner: Some(labels.owner.to_string()),
            image: info.snapshot.clone(),
            workspace: PathBuf::from("ralph"),
            created: info.created_at,
        })
    }
}

#[async_trait]
impl Provider for DaytonaProvider {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            isolation: Isolation::Container,
            network: NetworkEnforcement::Names,
            resources: Enforced::Yes,
            metering: Enforced::No,
            preview: true,
            credentials: CredentialRoute::Provider,
        }
    }

    fn hourly_cost(&self, spec: &SandboxSpec) -> Option<HourlyCost> {
        Some(size::hourly_cost(&spec.resources, &self.options.prices))
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        policy::allowed_domains(policy).err()
    }

    async fn check(&self) -> Result<(), SandboxError> {
        let call = self.api().await?.client.get("sandbox");
        Ok(call.query(&[("limit", "1")]).done().await?)
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let (api, name) = (self.api().await?, self.sandbox_name(spec));
        let failed = |error: DaytonaError| error.for_sandbox(&name);
        if api.sandbox(&name).await.map_err(failed)?.is_some() {
            let exists = io::ErrorKind::AlreadyExists.into();
            return Err(SandboxError::host("make", Path::new(&name), exists));
        }
        let (request, labels) = (self.request(spec).await?, self.labels(spec));
        let stored = secrets::store(api, &name, &self.options.secrets).await;
        stored.map_err(failed)?;
        let created = match create_or_find(api, &name, request, &labels).await {
            Ok(created) => created,
            Err(error) => {
                warn_not_removed(&name, secrets::remove(api, &labels.secrets).await);
                return Err(not_created(&name, spec, error));
            }
        };
        let timeout = match self.options.dockerfile {
            Some(_) => api::BUILD_TIMEOUT,
            None => api::START_TIMEOUT,
        };
        let opened = async {
            let started = api.bring_to(DaytonaPhase::Started, &created.id, timeout);
            prepare::open(api, started.await?, spec).await
        };
        match opened.await {
            Ok(sandbox) => Ok(Box::new(sandbox)),
            Err(error) => {
                warn_not_removed(&name, discard(api, &created).await);
                Err(failed(error))
            }
        }
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let (api, name) = (self.api().await?, self.sandbox_name(spec));
        let reopened = async {
            let Some(info) = api.sandbox(&name).await? else {
                return Ok(None);
            };
            let labels = self.labels(spec);
            let usable = info.phase() != DaytonaPhase::Failed
                && DaytonaLabels::parse(&info.labels)
                    .is_some_and(|found| found.fingerprint == labels.fingerprint);
            if !usable {
                discard(api, &info).await?;
                return Ok(None);
            }
            let path = format!("sandbox/{}/labels", info.id);
            let call = api.client.call(Method::PUT, &path);
            let call = call.body(json!({ "labels": labels.to_map() }));
            call.done().await?;
            secrets::store(api, &name, &self.options.secrets).await?;
            let started = api.bring_to(DaytonaPhase::Started, &info.id, api::START_TIMEOUT);
            prepare::open(api, started.await?, spec).await.map(Some)
        };
        let reopened = reopened.await;
        let reopened = reopened.map_err(|error: DaytonaError| error.for_sandbox(&name))?;
        Ok(reopened.map(|sandbox| -> Box<dyn Sandbox> { Box::new(sandbox) }))
    }

    async fn list(&self) -> Result<Vec<SandboxListing>, SandboxError> {
        let census = self.census().await?.into_iter();
        Ok(census.map(|(_, listed)| listed).collect())
    }

    async fn attach(&self, id: &str) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let Some((info, SandboxListing { run: Some(run), .. })) = self.find(id).await? else {
            return Ok(None);
        };
        let opened = prepare::open(self.api().await?, info, &SandboxSpec::unrestricted(run)).await;
        Ok(Some(Box::new(opened.map_err(|error| error.for_sandbox(id))?)))
    }

    async fn remove(&self, id: &str, scope: RemovalScope) -> Result<bool, SandboxError> {
        match self.find(id).await? {
            Some((info, listed)) if scope == RemovalScope::Any || listed.standing.is_orphan() => {
                let removed = discard(self.api().await?, &info).await;
                removed.map(|()| true).map_err(|error| error.for_sandbox(id))
            }
            Some(_) | None => Ok(false),
        }
    }

    fn images(&self) -> Option<&dyn ProviderImages> {
        Some(self)
    }
}

/// Creates a sandbox. If the call fails without a clear result, looks whether the sandbox was created.
async fn create_or_find(
    api: &DaytonaApi,
    name: &str,
    request: Value,
    labels: &DaytonaLabels,
) -> Result<DaytonaSandboxInfo, DaytonaError> {
    match api.client.post("sandbox", request).json().await {
        Err(error) if error.is_transient() => match api.sandbox(name).await {
            // The labels show that it is this one.
            Ok(Some(found)) if found.labels == labels.to_map() => Ok(found),
            Ok(_) | Err(_) => Err(error),
        },
        created => created,
    }
}

/// Removes a sandbox and its credentials in the vault.
async fn discard(api: &DaytonaApi, info: &DaytonaSandboxInfo) -> Result<(), DaytonaError> {
    api.client.delete(&format!("sandbox/{}", info.id)).await?;
    match DaytonaLabels::parse(&info.labels) {
        Some(labels) => secrets::remove(api, &labels.secrets).await,
        None => Ok(()),
    }
}

/// Why a sandbox was not created. Organisations of low tiers cannot set a network policy.
fn not_created(name: &str, spec: &SandboxSpec, error: DaytonaError) -> SandboxError {
    let restricted = policy::allowed_domains(&spec.network) != Ok(None);
    match error {
        DaytonaError::Refused {
            status: 400 | 403,
            message,
            ..
        } if restricted && message.to_lowercase().contains("network") => {
            let hint = "raise the tier of the organisation, or set `sandbox.network.policy = \"allow-all\"`";
            SandboxError::unsupported(NAME, "enforce the network policy", message).with_hint(Some(hint))
        }
        error => error.for_sandbox(name),
    }
}
