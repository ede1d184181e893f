//! The `daytona` provider: each sandbox is one at Daytona, reached by its REST API.
//!
//! Nothing of a sandbox is kept on this machine: whose it is stands in its labels, so that any machine with the key
//! finds it again. It is stopped when nobody uses it, and removed a week later, whatever becomes of this process.

mod api;
mod client;
mod error;
mod files;
mod labels;
mod options;
mod plain;
mod policy;
mod prepare;
mod sandbox;
mod secrets;
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
pub use self::options::{DaytonaOptions, DaytonaPrices, DaytonaSecret, Waiting};

use self::api::Api;
use self::client::Http;
use self::labels::Labels;
use self::sandbox::DaytonaSandbox;
use self::wire::{BuildInfo, Ground, NewSandbox, Phase, Remote};
use super::name::names;
use super::owner::Owner;
use super::{
    Activity, Capabilities, CredentialRoute, Enforced, HourlyCost, Isolation, Listed, NetworkEnforcement,
    Provider, Removable, Sandbox, SandboxError, SandboxErrorKind, SandboxSpec, Standing,
};
use crate::network::Policy;

const NAME: &str = "daytona";

/// After how many minutes without use a sandbox is stopped, and after how many more it is removed.
const STOPPED_AFTER: u32 = 15;
const REMOVED_AFTER: u32 = 7 * 24 * 60;

/// Makes sandboxes at Daytona. Nothing is asked of it before that is needed.
#[derive(Debug)]
pub struct DaytonaProvider {
    options: DaytonaOptions,
    owner: Owner,
    api: OnceCell<Api>,
}

impl DaytonaProvider {
    /// A provider that has asked nothing yet.
    #[must_use]
    pub fn new(options: DaytonaOptions) -> Self {
        Self {
            owner: Owner::this_process(&options.machine),
            options,
            api: OnceCell::new(),
        }
    }

    async fn api(&self) -> Result<&Api, SandboxError> {
        let connect = || async {
            let key = self
                .options
                .key
                .clone()
                .ok_or_else(|| SandboxError::unavailable(NAME, "DAYTONA_API_KEY is not set"))?;
            Ok(Api {
                http: Http::new(key, self.options.answer_within)
                    .map_err(|error| failed("(none yet)", error))?,
                url: self.options.api_url.trim_end_matches('/').to_owned(),
                waiting: self.options.waiting.clone(),
            })
        };
        self.api.get_or_try_init(connect).await
    }

    /// The one name that the sandbox of a run has, among all of an organisation.
    fn name_of(&self, spec: &SandboxSpec) -> String {
        let [_, own] = names(spec, Path::new(&self.options.machine));
        own
    }

    fn labels(&self, spec: &SandboxSpec) -> Labels {
        Labels {
            run: spec.run.clone(),
            owner: self.owner.clone(),
            fingerprint: labels::fingerprint(spec, &self.options),
            secrets: {
                let (name, secrets) = (self.name_of(spec), &self.options.secrets);
                secrets.iter().map(|one| secrets::name_of(&name, one)).collect()
            },
        }
    }

    /// What the sandbox starts from: what Daytona is to build, or a snapshot.
    async fn ground(&self, spec: &SandboxSpec) -> Result<Ground, SandboxError> {
        if let Some(dockerfile) = &self.options.dockerfile {
            return Ok(Ground::Build {
                build_info: BuildInfo {
                    dockerfile_content: dockerfile.clone(),
                },
                size: size::size(&spec.resources),
            });
        }
        let snapshot = snapshot::ready(self.api().await?, spec).await;
        let snapshot = snapshot.map_err(|error| failed(&self.name_of(spec), error))?;
        Ok(Ground::Snapshot { snapshot })
    }

    async fn new_sandbox(&self, spec: &SandboxSpec) -> Result<NewSandbox, SandboxError> {
        let name = self.name_of(spec);
        if let Some(mount) = spec.mounts.first() {
            let reason = format!("`{}` is here, and they are elsewhere", mount.source.display());
            let operation = "show files of this machine to its sandboxes";
            return Err(SandboxError::unsupported(NAME, operation, reason));
        }
        Ok(NewSandbox {
            ground: self.ground(spec).await?,
            secrets: secrets::mounted(&name, &self.options.secrets),
            env: spec.env.clone(),
            labels: self.labels(spec).to_map(),
            network: policy::compile(&spec.network)
                .map_err(|reason| SandboxError::unsupported(NAME, "enforce the network policy", reason))?,
            target: self.options.target.clone(),
            auto_stop_interval: STOPPED_AFTER,
            auto_delete_interval: REMOVED_AFTER,
            name,
        })
    }

    /// Makes a sandbox, and removes it again when it does not come to life.
    async fn make(&self, new: &NewSandbox, spec: &SandboxSpec) -> Result<DaytonaSandbox, SandboxError> {
        let api = self.api().await?;
        let patience = match &new.ground {
            Ground::Snapshot { .. } => api::SANDBOX_PATIENCE,
            Ground::Build { .. } => api::BUILD_PATIENCE,
        };
        let secrets = secrets::keep(api, &new.name, &self.options.secrets).await;
        secrets.map_err(|error| failed(&new.name, error))?;
        let made = match created(api, new).await {
            Ok(made) => made,
            Err(error) => {
                tell_left(&new.name, secrets::forget(api, &self.labels(spec).secrets).await);
                return Err(refused(new, error));
            }
        };
        let opened = async {
            let started = api.started(&made.id, patience).await?;
            prepare::open(api, started, spec).await
        };
        match opened.await {
            Ok(sandbox) => Ok(sandbox),
            Err(error) => {
                tell_left(&new.name, discard(api, &made).await);
                Err(failed(&new.name, error))
            }
        }
    }

    /// All sandboxes of ralph's, whoever made them.
    async fn census(&self) -> Result<Vec<(Remote, Listed)>, SandboxError> {
        let found = self.api().await?.labelled(&labels::of_all()).await;
        let found = found.map_err(|error| failed("(any)", error))?;
        let mut listed: Vec<(Remote, Listed)> = found
            .into_iter()
            .filter_map(|remote| {
                let listed = self.listed(&remote)?;
                Some((remote, listed))
            })
            .collect();
        listed.sort_by(|one, other| one.1.id.cmp(&other.1.id));
        Ok(listed)
    }

    fn listed(&self, remote: &Remote) -> Option<Listed> {
        let labels = Labels::read(&remote.labels)?;
        Some(Listed {
            id: remote.name.clone(),
            provider: NAME,
            run: Some(labels.run),
            activity: match remote.state.phase() {
                Phase::Started | Phase::Moving => Activity::Running,
                Phase::Resting | Phase::Failed => Activity::Stopped,
                Phase::Ending => return None,
            },
            standing: if labels.owner.is_dead(&self.owner) {
                Standing::OwnerEnded
            } else {
                Standing::InUse
            },
            owner: Some(labels.owner.to_string()),
            image: remote.snapshot.clone(),
            workspace: PathBuf::from("ralph"),
            created: remote.created_at,
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
        Some(size::hourly(&spec.resources, &self.options.prices))
    }

    fn objection(&self, policy: &Policy) -> Option<String> {
        policy::compile(policy).err()
    }

    async fn check(&self) -> Result<(), SandboxError> {
        let tried = self.api().await?.try_key().await;
        tried.map_err(|error| failed("(none yet)", error))
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
        let name = self.name_of(spec);
        let found = self.api().await?.sandbox(&name).await;
        if found.map_err(|error| failed(&name, error))?.is_some() {
            let exists = io::ErrorKind::AlreadyExists.into();
            return Err(SandboxError::host("make", Path::new(&name), exists));
        }
        let new = self.new_sandbox(spec).await?;
        Ok(Box::new(self.make(&new, spec).await?))
    }

    async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
        let (api, name) = (self.api().await?, self.name_of(spec));
        let reopened = async {
            let Some(remote) = api.sandbox(&name).await? else {
                return Ok(None);
            };
            let labels = self.labels(spec);
            let usable = remote.state.phase() != Phase::Failed
                && Labels::read(&remote.labels).is_some_and(|found| found.fingerprint == labels.fingerprint);
            if !usable {
                discard(api, &remote).await?;
                return Ok(None);
            }
            api.relabel(&remote.id, &labels.to_map()).await?;
            secrets::keep(api, &name, &self.options.secrets).await?;
            let started = api.started(&remote.id, api::SANDBOX_PATIENCE).await?;
            prepare::open(api, started, spec).await.map(Some)
        };
        let reopened = reopened.await.map_err(|error| failed(&name, error))?;
        Ok(reopened.map(|sandbox| -> Box<dyn Sandbox> { Box::new(sandbox) }))
    }

    async fn list(&self) -> Result<Vec<Listed>, SandboxError> {
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
        let Some((remote, Listed { run: Some(run), .. })) = found else {
            return Ok(None);
        };
        let opened = prepare::open(self.api().await?, remote, &SandboxSpec::unrestricted(run)).await;
        Ok(Some(Box::new(opened.map_err(|error| failed(id, error))?)))
    }

    async fn remove(&self, id: &str, removable: Removable) -> Result<bool, SandboxError> {
        let found = self
            .census()
            .await?
            .into_iter()
            .find(|(_, listed)| listed.id == id);
        match found {
            Some((remote, listed)) if removable == Removable::Any || listed.standing.is_orphan() => {
                let removed = discard(self.api().await?, &remote).await;
                removed.map(|()| true).map_err(|error| failed(id, error))
            }
            Some(_) | None => Ok(false),
        }
    }
}

/// Makes the sandbox, or finds it made by a call of which nobody knows whether it was heard.
async fn created(api: &Api, new: &NewSandbox) -> Result<Remote, DaytonaError> {
    match api.create(new).await {
        Err(error) if error.may_pass() => match api.sandbox(&new.name).await {
            // One of that name with our own labels is ours.
            Ok(Some(found)) if found.labels == new.labels => Ok(found),
            Ok(_) | Err(_) => Err(error),
        },
        made => made,
    }
}

/// Removes a sandbox and what the vault keeps for it.
async fn discard(api: &Api, remote: &Remote) -> Result<(), DaytonaError> {
    api.delete(&remote.id).await?;
    match Labels::read(&remote.labels) {
        Some(labels) => secrets::forget(api, &labels.secrets).await,
        None => Ok(()),
    }
}

/// Tells what could not be cleared away after another failure, which is the one to report.
fn tell_left(sandbox: &str, cleared: Result<(), DaytonaError>) {
    if let Err(left) = cleared {
        tracing::warn!(sandbox, %left, "a sandbox that came to nothing could not be removed");
    }
}

/// Why a sandbox was not made. Organisations on the lower tiers may not choose what their sandboxes reach.
fn refused(new: &NewSandbox, error: DaytonaError) -> SandboxError {
    let restricted = new.network != wire::Network::default();
    match error {
        DaytonaError::Refused {
            status: 400 | 403,
            message,
            ..
        } if restricted && message.to_lowercase().contains("network") => {
            let reason = format!(
                "Daytona says: {message} (an organisation of a low tier has Daytona's own policy: raise the tier, or set \
                 sandbox.network.policy = \"allow-all\")"
            );
            SandboxError::unsupported(NAME, "enforce the network policy", reason)
        }
        error => failed(&new.name, error),
    }
}

fn failed(sandbox: &str, source: DaytonaError) -> SandboxError {
    let kind = if source.may_pass() {
        SandboxErrorKind::Unreachable
    } else {
        SandboxErrorKind::Failed
    };
    let hint = source.hint();
    SandboxError::new(kind, format!("Daytona failed for the sandbox `{sandbox}`"))
        .with_cause(source)
        .with_hint(hint)
}
