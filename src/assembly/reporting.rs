//! Where the events of a run go: its log, the sinks of the caller, its notifications and its traces.

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::{Config, NotifyKind, NotifySettings, is_request_url};
use crate::event::{Event, EventKind, EventSink, Fanout};
use crate::id::RunId;
use crate::notify::{ChannelAddress, Notifier, NotifierParts, NotifyChannel, WebhookKey};
use crate::otlp::{OtlpEndpoint, OtlpExporter, RunTracer};
use crate::secret::{Redactor, Secret};
use crate::state::RunDir;

use super::event_log::EventLog;
use super::{AssemblyContext, AssemblyError, ErrorTopic};

/// Everything that gets the events of one run.
pub(super) struct RunReporting {
    sinks: Vec<Arc<dyn EventSink>>,
    notifier: Option<Arc<Notifier>>,
    tracer: Option<Arc<RunTracer>>,
    log: Arc<dyn EventSink>,
    clock: Arc<dyn Clock>,
    run: RunId,
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
        let mut sinks = vec![log.clone()];
        let mut notifier = None;
        if !channels.is_empty() {
            let started = Arc::new(Notifier::start(parts, channels));
            sinks.push(started.clone());
            notifier = Some(started);
        }
        let (tracer, no_traces) = match tracer(context, config, &dir.facts().id, redactor) {
            Ok(tracer) => (tracer, None),
            Err(reason) => (None, Some(reason)),
        };
        sinks.extend(tracer.clone().map(|tracer| tracer as Arc<dyn EventSink>));
        let reporting = Self {
            sinks,
            notifier,
            tracer,
            log,
            clock: context.surroundings.clock(),
            run: dir.facts().id.clone(),
        };
        // The variable is for all programs of a host, so it must not keep ralph from its work.
        if let Some(reason) = no_traces {
            reporting.warn(format!("no traces are sent: {reason}"));
        }
        Ok(reporting)
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
        if let Some(tracer) = &self.tracer {
            match tracer.flush().await {
                0 => {}
                lost => self.warn(format!(
                    "{lost} spans of the trace are lost: `{ENDPOINT}` did not accept them"
                )),
            }
        }
    }

    fn warn(&self, message: String) {
        self.log.emit(&Event {
            at: self.clock.now(),
            run: self.run.clone(),
            iteration: None,
            kind: EventKind::Warning { message },
        });
    }
}

/// The variable with the address that traces are sent to.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Fails if notifications are configured and cannot work.
pub(super) fn check(config: &Config) -> Result<(), AssemblyError> {
    channels(config).map(|_| ())
}

/// What sends traces, if a receiver is set. Fails with the reason, for people.
fn tracer(
    context: &AssemblyContext,
    config: &Config,
    run: &RunId,
    redactor: &Redactor,
) -> Result<Option<Arc<RunTracer>>, String> {
    let Some(url) = context.surroundings.var(ENDPOINT) else {
        return Ok(None);
    };
    if !is_request_url(url) {
        return Err(format!(
            "`{ENDPOINT}` is not an address such as `http://127.0.0.1:4318`"
        ));
    }
    let endpoint = OtlpEndpoint::new(url, config.credential(HEADERS).as_ref());
    let endpoint = endpoint.map_err(|error| format!("`{HEADERS}`: {error}"))?;
    redactor.learn(endpoint.secrets());
    let exporter = OtlpExporter::start(endpoint).map_err(|error| format!("`{ENDPOINT}`: {error}"))?;
    Ok(Some(Arc::new(RunTracer::new(exporter, run))))
}

/// The channels of the configuration. Fails if a variable that one of them names is not set, or has no valid value.
fn channels(config: &Config) -> Result<Vec<NotifyChannel>, AssemblyError> {
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
                .with_topic(ErrorTopic::Configuration)
                .with_hint("it starts with `https://` and has no user name or password"))
        };
    }
    let url = settings.url.clone();
    url.map(Secret::new).ok_or_else(|| {
        AssemblyError::usage("`notify`: there is no `url`").with_topic(ErrorTopic::Configuration)
    })
}

fn webhook_key(settings: &NotifySettings, secret: &Secret) -> Result<WebhookKey, AssemblyError> {
    WebhookKey::parse(secret).map_err(|error| {
        let name = settings.secret_env.as_deref().unwrap_or_default();
        let hint = "make one with: echo \"whsec_$(head -c 32 /dev/urandom | base64)\"";
        AssemblyError::usage(format!("`notify`: the variable `{name}`: {error}"))
            .with_topic(ErrorTopic::Configuration)
            .with_hint(hint)
    })
}

fn variable(config: &Config, name: &str) -> Result<Secret, AssemblyError> {
    config.credential(name).ok_or_else(|| {
        let message = format!("`notify` names the variable `{name}`, which is not set");
        AssemblyError::usage(message)
            .with_topic(ErrorTopic::Configuration)
            .with_hint("set it in the environment, or remove that entry of `notify` from your user file")
    })
}
