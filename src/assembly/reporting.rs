//! Where the events of a run go: its log, the sinks of the caller, and its notifications.

use std::sync::Arc;

use crate::config::{Config, NotifyKind, NotifySettings, is_request_url};
use crate::event::{EventSink, Fanout};
use crate::notify::{ChannelAddress, Notifier, NotifierParts, NotifyChannel, WebhookKey};
use crate::secret::{Redactor, Secret};
use crate::state::RunDir;

use super::event_log::EventLog;
use super::{AssemblyContext, AssemblyError};

/// Everything that gets the events of one run.
pub(super) struct RunReporting {
    sinks: Vec<Arc<dyn EventSink>>,
    notifier: Option<Arc<Notifier>>,
}

impl RunReporting {
    /// Opens the log of the run, and prepares its notifications. `sink` gets the same events.
    pub(super) fn open(
        context: &AssemblyContext,
        config: &Config,
        dir: &RunDir,
        sink: Arc<dyn EventSink>,
        redactor: &Redactor,
    ) -> Result<Self, AssemblyError> {
        let log: Arc<dyn EventSink> = Arc::new(EventLog::open(&dir.events_file(), sink)?);
        let channels = channels(config)?;
        let parts = NotifierParts {
            dir: dir.clone(),
            warnings: log.clone(),
            clock: context.surroundings.clock(),
            redactor: redactor.clone(),
            host: context.surroundings.desktop_host(),
        };
        let mut sinks = vec![log];
        let mut notifier = None;
        if !channels.is_empty() {
            let started = Arc::new(Notifier::start(parts, channels));
            sinks.push(started.clone());
            notifier = Some(started);
        }
        Ok(Self { sinks, notifier })
    }

    /// Gets every event of the run.
    pub(super) fn sink(&self) -> Arc<dyn EventSink> {
        Arc::new(Fanout(self.sinks.clone()))
    }

    /// Looks for notices that no event announced. Only for the owner of the run.
    pub(super) fn wake(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.wake();
        }
    }

    /// Waits a bounded time for what is still being sent.
    pub(super) async fn settle(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.settle().await;
        }
    }
}

/// The channels of the configuration. Fails if a variable that one of them names is not set, or has no valid value.
pub(super) fn channels(config: &Config) -> Result<Vec<NotifyChannel>, AssemblyError> {
    let settings = config.settings.notify.iter();
    settings
        .map(|settings| {
            Ok(NotifyChannel {
                events: settings.events.clone(),
                address: address(config, settings)?,
            })
        })
        .collect()
}

fn address(config: &Config, settings: &NotifySettings) -> Result<ChannelAddress, AssemblyError> {
    let secret = || {
        let name = settings.secret_env.as_deref();
        name.map(|name| variable(config, name)).transpose()
    };
    Ok(match settings.kind {
        NotifyKind::Webhook => ChannelAddress::Webhook {
            url: url(config, settings)?,
            key: secret()?
                .map(|secret| webhook_key(settings, &secret))
                .transpose()?,
        },
        NotifyKind::Slack => ChannelAddress::Slack {
            url: url(config, settings)?,
        },
        NotifyKind::Ntfy => ChannelAddress::Ntfy {
            url: url(config, settings)?,
            token: secret()?,
        },
        NotifyKind::Command => ChannelAddress::Command(settings.command.clone()),
    })
}

fn url(config: &Config, settings: &NotifySettings) -> Result<Secret, AssemblyError> {
    if let Some(name) = &settings.url_env {
        let url = variable(config, name)?;
        return if is_request_url(url.expose()) {
            Ok(url)
        } else {
            let message = format!("`notify`: the variable `{name}` holds no address of HTTP");
            Err(AssemblyError::usage(message)
                .with_hint("it starts with `https://` and has no user name or password"))
        };
    }
    let url = settings.url.clone();
    url.map(Secret::new)
        .ok_or_else(|| AssemblyError::usage("`notify`: there is no `url`"))
}

fn webhook_key(settings: &NotifySettings, secret: &Secret) -> Result<WebhookKey, AssemblyError> {
    WebhookKey::parse(secret).map_err(|error| {
        let name = settings.secret_env.as_deref().unwrap_or_default();
        let hint = "make one with: echo \"whsec_$(head -c 32 /dev/urandom | base64)\"";
        AssemblyError::usage(format!("`notify`: the variable `{name}`: {error}")).with_hint(hint)
    })
}

fn variable(config: &Config, name: &str) -> Result<Secret, AssemblyError> {
    config.credential(name).ok_or_else(|| {
        let message = format!("`notify` names the variable `{name}`, which is not set");
        AssemblyError::usage(message)
            .with_hint("set it in the environment, or remove that entry of `notify` from your user file")
    })
}
