//! Delivers the notices of one run in the background.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clock::Clock;
use crate::event::{Event, EventKind, EventSink};
use crate::exec::Host;
use crate::secret::Redactor;
use crate::state::{RunDir, StateError};
use crate::text::error_chain;

use super::channel::NotifyChannel;
use super::deliveries::{DeliveryEntry, DeliveryLog, SettledNotices};
use super::notice::{Notice, notices};
use super::sender::{SendError, Sender};

/// The pauses between the attempts to deliver a notice.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

/// How long the end of a run waits for its notices.
const SETTLE_LIMIT: Duration = Duration::from_secs(15);

/// What a [`Notifier`] works with.
#[derive(Clone)]
pub struct NotifierParts {
    /// The run.
    pub dir: RunDir,
    /// Gets a warning for each notice that is not delivered.
    pub warnings: Arc<dyn EventSink>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Knows the secrets that no notice may contain.
    pub redactor: Redactor,
    /// Starts the programs of channels.
    pub host: Host,
}

/// Delivers the notices of a run, each channel on its own. It never delays the run: events only wake it up.
pub struct Notifier {
    /// How often it was woken.
    wakes: watch::Sender<u64>,
    /// The last of those that each channel is done with.
    seen: Vec<watch::Receiver<u64>>,
    parts: NotifierParts,
    /// Ends the deliveries when it is dropped.
    _tasks: JoinSet<()>,
}

impl Notifier {
    /// Prepares to deliver to these channels. Nothing is delivered until an event shows that this process owns the run.
    ///
    /// Must be called in a tokio runtime.
    #[must_use]
    pub fn start(parts: NotifierParts, channels: Vec<NotifyChannel>) -> Self {
        let log = DeliveryLog::new(parts.dir.notifications_file());
        let started = parts.clock.now();
        let (wakes, _) = watch::channel(0);
        let (mut seen, mut tasks) = (Vec::new(), JoinSet::new());
        for channel in channels {
            let (done, watched) = watch::channel(0);
            seen.push(watched);
            let deliveries = ChannelDeliveries {
                label: channel.address.label(),
                channel,
                log: log.clone(),
                parts: parts.clone(),
                started,
                settled: None,
            };
            tasks.spawn(deliveries.serve(wakes.subscribe(), done));
        }
        Self {
            wakes,
            seen,
            parts,
            _tasks: tasks,
        }
    }

    /// Looks for notices in the journal. Only for the owner of the run.
    pub fn wake(&self) {
        self.wakes.send_modify(|number| *number += 1);
    }

    /// Waits until everything so far is delivered or given up, but not for long. What is left is delivered by a resume.
    pub async fn settle(&self) {
        let wanted = *self.wakes.borrow();
        let all = self.seen.iter().map(|seen| {
            let mut seen = seen.clone();
            async move { seen.wait_for(|number| *number >= wanted).await.is_ok() }
        });
        if timeout(SETTLE_LIMIT, join_all(all)).await.is_err() {
            let limit = SETTLE_LIMIT.as_secs();
            self.parts.warn(format!(
                "notifications are not delivered after {limit} s; a resume of the run tries again"
            ));
        }
    }
}

impl EventSink for Notifier {
    fn emit(&self, event: &Event) {
        // Each of these follows a line of the journal.
        if let EventKind::RunStarted { .. }
        | EventKind::RunResumed { .. }
        | EventKind::BudgetWarning { .. }
        | EventKind::PullRequest { .. }
        | EventKind::CiFailed { .. }
        | EventKind::RunEnded { .. } = event.kind
        {
            self.wake();
        }
    }
}

impl NotifierParts {
    fn warn(&self, message: String) {
        self.warnings.emit(&Event {
            at: self.clock.now(),
            run: self.dir.facts().id.clone(),
            iteration: None,
            kind: EventKind::Warning { message },
        });
    }
}

/// Delivers to one channel.
struct ChannelDeliveries {
    channel: NotifyChannel,
    label: String,
    log: DeliveryLog,
    parts: NotifierParts,
    started: Timestamp,
    /// What needs no delivery; `None` until the record was read.
    settled: Option<SettledNotices>,
}

impl ChannelDeliveries {
    async fn serve(mut self, mut wakes: watch::Receiver<u64>, done: watch::Sender<u64>) {
        let sender = match Sender::new(self.parts.host.clone()) {
            Ok(sender) => sender,
            Err(error) => return self.parts.warn(self.describe(&error_chain(&error))),
        };
        while wakes.changed().await.is_ok() {
            let number = *wakes.borrow_and_update();
            if let Err(error) = self.deliver_all(&sender).await {
                self.parts.warn(self.describe(&error_chain(&error)));
            }
            done.send_replace(number);
        }
    }

    /// Delivers what the journal has and the record has not.
    async fn deliver_all(&mut self, sender: &Sender) -> Result<(), StateError> {
        let mut settled = match self.settled.take() {
            Some(settled) => settled,
            None => self.log.settled(&self.label, self.started)?,
        };
        let delivered = self.deliver_due(sender, &mut settled).await;
        self.settled = Some(settled);
        delivered
    }

    async fn deliver_due(&self, sender: &Sender, settled: &mut SettledNotices) -> Result<(), StateError> {
        let mut due = notices(self.parts.dir.facts(), &self.parts.dir.journal()?);
        due.retain(|notice| {
            notice.at >= settled.since
                && self.channel.events.contains(&notice.event)
                && !settled.ids.contains(&notice.id)
        });
        for notice in due {
            // In memory too: a record that cannot be written must not repeat notices.
            settled.ids.insert(notice.id.clone());
            let entry = self.deliver(sender, notice.redacted(&self.parts.redactor)).await;
            self.log.add(&entry)?;
        }
        Ok(())
    }

    /// Delivers one notice, in as many attempts as it may have.
    async fn deliver(&self, sender: &Sender, notice: Notice) -> DeliveryEntry {
        let mut pauses = PAUSES.iter();
        let failed = loop {
            let now = self.parts.clock.now();
            let failed = match sender.send(&self.channel.address, &notice, now).await {
                Ok(()) => break None,
                Err(error) => error,
            };
            match pauses.next().filter(|_| !failed.is_final()) {
                Some(pause) => sleep(*pause).await,
                None => break Some(failed),
            }
        };
        let (id, channel, at) = (notice.id.clone(), self.label.clone(), self.parts.clock.now());
        match failed {
            None => DeliveryEntry::Delivered { id, channel, at },
            Some(error) => {
                let reason = self.give_up(&notice, &error);
                DeliveryEntry::GaveUp {
                    id,
                    channel,
                    at,
                    reason,
                }
            }
        }
    }

    /// Warns of a notice that is not delivered. Returns why.
    fn give_up(&self, notice: &Notice, error: &SendError) -> String {
        let reason = self.parts.redactor.redact(&error.to_string());
        self.parts
            .warn(self.describe(&format!("`{}` is not delivered: {reason}", notice.event.name())));
        reason
    }

    fn describe(&self, what: &str) -> String {
        format!("notification by {}: {what}", self.channel.address.kind())
    }
}
