//! The `daytona` provider: sandboxes at Daytona, through its REST API.
//!
//! The host stores nothing about a sandbox: its owner is in its labels, so that every host with the key can find it.
//! Daytona stops a sandbox that is idle, and removes it a week later, also if this process is killed.

mod api;
mod client;
mod error;
mod files;
mod handle;
mod labels;
mod options;
mod policy;
mod prepare;
mod sandbox;
mod secrets;
mod session_exec;
mod size;
mod snapshot;
mod socket;
mod terminal;
mod toolbox;
mod wire;

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tokio::sync::OnceCell;

pub use self::error::DaytonaError;
pub use self::options::{DaytonaOptions, DaytonaPrices, DaytonaProgress, DaytonaSecret};

use self::api::DaytonaApi;
use self::client::DaytonaClient;
use self::labels::DaytonaLabels;
use self::sandbox::DaytonaSandbox;
use self::wire::{
    CreateDaytonaSandbox, DaytonaBuildInfo, DaytonaImageSource, DaytonaNetwork, DaytonaPhase,
    DaytonaSandboxInfo,
};
use super::name::names;
use super::owner::Owner;
use super::{
    Capabilities, CredentialRoute, Enforced, HourlyCost, Isolation, NetworkEnforcement, Provider,
    RemovalScope, Sandbox, SandboxActivity, SandboxError, SandboxListing, SandboxOwnership, SandboxSpec,
};
use crate::network::Policy;

const NAME: &str = "daytona";

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
            let key = self
                .options
                .key
                .clone()
                .ok_or_else(|| SandboxError::unavailable(NAME, "DAYTONA_API_KEY is not set"))?;
            Ok(DaytonaApi {
                client: DaytonaClient::new(key, self.options.read_timeout).map_err(to_sandbox_error)?,
                url: self.options.api_url.trim_end_matches('/').to_owned(),
                progress: self.options.progress.clone(),
            })
        };
        self.api.get_or_try_init(connect).await
    }

    /// The name of a run's sandbox, which is unique in the organisation.
    fn sandbox_name(&self, spec: &SandboxSpec) -> String {
        let [_, own] = names(spec, Path::new(&self.options.host_name));
        own
    }

    fn labels(&self, spec: &SandboxSpec) -> DaytonaLabels {
        DaytonaLabels {
            run: spec.run.clone(),
            owner: self.owner.clone(),
            fingerprint: labels::fingerprint(spec, &self.options),
            secrets: {
                let (name, secrets) = (self.sandbox_name(spec), &self.options.secrets);
                secrets
                    .iter()
                    .map(|one| secrets::vault_name(&name, one))
                    .collect()
            },
        }
    }

    /// What the sandbox starts from: a Dockerfile that Daytona builds, or a snapshot.
    async fn image_source(&self, spec: &SandboxSpec) -> Result<DaytonaImageSource, SandboxError> {
        if let Some(dockerfile) = &self.options.dockerfile {
            return Ok(DaytonaImageSource::Build {
                build_info: DaytonaBuildInfo {
                    dockerfile_content: dockerfile.clone(),
                },
                size: size::size(&spec.resources),
            });
        }
        let snapshot = snapshot::ensure(self.api().await?, spec).await;
        let snapshot = snapshot.map_err(|error| failed(&self.sandbox_name(spec), error))?;
        Ok(DaytonaImageSource::Snapshot { snapshot })
    }

    async fn request(&self, spec: &SandboxSpec) -> Result<CreateDaytonaSandbox, SandboxError> {
        let name = self.sandbox_name(spec);
        if let Some(mount) = spec.mounts.first() {
            let reason = format!(
                "`{}` is on the host, the sandboxes are remote",
                mount.source.display()
            );
            let operation = "mount host files into its sandboxes";
            return Err(SandboxError::unsupported(NAME, operation, reason));
        }
        Ok(CreateDaytonaSandbox {
            source: self.image_source(spec).await?,
            secrets: secrets::to_request(&name, &self.options.secrets),
            env: spec.env.clone(),
            labels: self.labels(spec).to_map(),
            network: policy::compile(&spec.network)
                .map_err(|reason| SandboxError::unsupported(NAME, "enforce the network policy", reason))?,
            target: self.options.target.clone(),
            auto_stop_interval: STOP_MINUTES,
            auto_delete_interval: REMOVE_MINUTES,
            name,
        })
    }

    /// Creates a sandbox, and removes it if it does not start.
    async fn create_and_open(
        &self,
        new: &CreateDaytonaSandbox,
        spec: &SandboxSpec,
    ) -> Result<DaytonaSandbox, SandboxError> {
        let api = self.api().await?;
        let timeout = match &new.source {
            DaytonaImageSource::Snapshot { .. } => api::START_TIMEOUT,
            DaytonaImageSource::Build { .. } => api::BUILD_TIMEOUT,
        };
        let secrets = secrets::store(api, &new.name, &self.options.secrets).await;
        secrets.map_err(|error| failed(&new.name, error))?;
        let created = match create_or_find(api, new).await {
            Ok(created) => created,
            Err(error) => {
                warn_not_removed(&new.name, secrets::remove(api, &self.labels(spec).secrets).await);
                return Err(not_created(new, error));
            }
        };
        let opened = async {
            let started = api.start(&created.id, timeout).await?;
            prepare::open(api, started, spec).await
        };
        match opened.await {
            Ok(sandbox) => Ok(sandbox),
            Err(error) => {
                warn_not_removed(&new.name, discard(api, &created).await);
                Err(failed(&new.name, error))
            }
        }
    }

    /// All sandboxes of ralph, also those of other hosts.
    async fn census(&self) -> Result<Vec<(DaytonaSandboxInfo, SandboxListing)>, SandboxError> {
        let found = self.api().await?.sandboxes(&labels::common_label()).await;
        let found = found.map_err(to_sandbox_error)?;
        let mut listed: Vec<(DaytonaSandboxInfo, SandboxListing)> = found
            .into_iter()
            .filter_map(|info| {
                let listed = self.listed(&info)?;
                Some((info, listed))
            })
            .collect();
        listed.sort_by(|one, other| one.1.id.cmp(&other.1.id));
        Ok(listed)
    }

    fn listed(&self, info: &DaytonaSandboxInfo) -> Option<SandboxListing> {
        let labels = DaytonaLabels::parse(&info.labels)?;
        Some(SandboxListing {
            id: info.name.clone(),
            provider: NAME,
            run: Some(labels.run),
            activity: match info.state.phase() {
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
        policy::compile(policy).err()
    }

    async fn check(&self) -> Result<(), SandboxError> {
        let tried = self.api().await?.check_key().await;
        tried.map_err(to_sandbox_error)
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let name = self.sandbox_name(spec);
        let found = self.api().await?.sandbox(&name).await;
        if found.map_err(|error| failed(&name, error))?.is_some() {
            let exists = io::ErrorKind::AlreadyExists.into();
            return Err(SandboxError::host("make", Path::new(&name), exists));
        }
        let new = self.request(spec).await?;
        Ok(Box::new(self.create_and_open(&new, spec).await?))
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let (api, name) = (self.api().await?, self.sandbox_name(spec));
        let reopened = async {
            let Some(info) = api.sandbox(&name).await? else {
                return Ok(None);
            };
            let labels = self.labels(spec);
            let usable = info.state.phase() != DaytonaPhase::Failed
                && DaytonaLabels::parse(&info.labels)
                    .is_some_and(|found| found.fingerprint == labels.fingerprint);
            if !usable {
                discard(api, &info).await?;
                return Ok(None);
            }
            api.set_labels(&info.id, &labels.to_map()).await?;
            secrets::store(api, &name, &self.options.secrets).await?;
            let started = api.start(&info.id, api::START_TIMEOUT).await?;
            prepare::open(api, started, spec).await.map(Some)
        };
        let reopened = reopened.await.map_err(|error| failed(&name, error))?;
        Ok(reopened.map(|sandbox| -> Box<dyn Sandbox> { Box::new(sandbox) }))
    }

    async fn list(&self) -> Result<Vec<SandboxListing>, SandboxError> {
        Ok(self
            .census()
            .await?
            .into_iter()
            .map(|(_, listed)| listed)
            .collect())
    }

    async fn attach(&self, id: &str) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let found = self
            .census()
            .await?
            .into_iter()
            .find(|(_, listed)| listed.id == id);
        let Some((info, SandboxListing { run: Some(run), .. })) = found else {
            return Ok(None);
        };
        let opened = prepare::open(self.api().await?, info, &SandboxSpec::unrestricted(run)).await;
        Ok(Some(Box::new(opened.map_err(|error| failed(id, error))?)))
    }

    async fn remove(&self, id: &str, scope: RemovalScope) -> Result<bool, SandboxError> {
        let found = self
            .census()
            .await?
            .into_iter()
            .find(|(_, listed)| listed.id == id);
        match found {
            Some((info, listed)) if scope == RemovalScope::Any || listed.standing.is_orphan() => {
                let removed = discard(self.api().await?, &info).await;
                removed.map(|()| true).map_err(|error| failed(id, error))
            }
            Some(_) | None => Ok(false),
        }
    }
}

/// Creates a sandbox. If the call fails without a clear result, looks whether the sandbox was created.
async fn create_or_find(
    api: &DaytonaApi,
    new: &CreateDaytonaSandbox,
) -> Result<DaytonaSandboxInfo, DaytonaError> {
    match api.create(new).await {
        Err(error) if error.is_transient() => match api.sandbox(&new.name).await {
            // The labels show that it is this one.
            Ok(Some(found)) if found.labels == new.labels => Ok(found),
            Ok(_) | Err(_) => Err(error),
        },
        created => created,
    }
}

/// Removes a sandbox and its credentials in the vault.
async fn discard(api: &DaytonaApi, info: &DaytonaSandboxInfo) -> Result<(), DaytonaError> {
    api.delete(&info.id).await?;
    match DaytonaLabels::parse(&info.labels) {
        Some(labels) => secrets::remove(api, &labels.secrets).await,
        None => Ok(()),
    }
}

/// Logs a failed removal after another error, which is the one to report.
fn warn_not_removed(sandbox: &str, removed: Result<(), DaytonaError>) {
    if let Err(error) = removed {
        tracing::warn!(sandbox, %error, "cannot remove a sandbox that did not start");
    }
}

/// Why a sandbox was not created. Organisations of low tiers cannot set a network policy.
fn not_created(new: &CreateDaytonaSandbox, error: DaytonaError) -> SandboxError {
    let restricted = new.network != DaytonaNetwork::default();
    match error {
        DaytonaError::Refused {
            status: 400 | 403,
            message,
            ..
        } if restricted && message.to_lowercase().contains("network") => {
            let hint = "raise the tier of the organisation, or set `sandbox.network.policy = \"allow-all\"`";
            SandboxError::unsupported(NAME, "enforce the network policy", message).with_hint(Some(hint))
        }
        error => failed(&new.name, error),
    }
}

/// The error for one sandbox.
fn failed(sandbox: &str, error: DaytonaError) -> SandboxError {
    let hint = error.hint();
    SandboxError::new(
        error.kind(),
        format!("Daytona failed for the sandbox `{sandbox}`"),
    )
    .with_cause(error)
    .with_hint(hint)
}

/// The error for an operation that concerns no sandbox in particular.
fn to_sandbox_error(error: DaytonaError) -> SandboxError {
    let hint = error.hint();
    SandboxError::from_cause(error.kind(), error).with_hint(hint)
}
