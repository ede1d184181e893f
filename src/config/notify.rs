//! `[[notify]]`: who is notified about runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::key::KeyPath;
use super::layer::{ConfigLayer, SettingOrigin, SettingPlace};
use super::read;
use super::settings::ConfigSettings;
use super::stack::LayerStack;
use crate::notify::NotifyEvent;

/// One `[[notify]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table with `kind`, `events`, and `url_env`, `url` or `command`"
)]
pub struct NotifySettings {
    /// How it is delivered.
    pub kind: NotifyKind,
    /// What it is about.
    pub events: Vec<NotifyEvent>,
    /// The address of a webhook or a topic of ntfy.
    #[serde(default, deserialize_with = "read::request_url")]
    pub url: Option<String>,
    /// The variable that holds the address.
    #[serde(default, deserialize_with = "read::variable")]
    pub url_env: Option<String>,
    /// The variable that holds the key of a webhook's signature, or the token of an ntfy server.
    #[serde(default, deserialize_with = "read::variable")]
    pub secret_env: Option<String>,
    /// A program and its arguments.
    #[serde(default)]
    pub command: Vec<String>,
}

/// How a notification is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NotifyKind {
    /// A POST of JSON.
    Webhook,
    /// An incoming webhook of Slack.
    Slack,
    /// A topic of ntfy.
    Ntfy,
    /// A program on the host.
    Command,
}

impl NotifySettings {
    /// What is wrong with it, if anything.
    fn mistake(&self) -> Option<&'static str> {
        let (has_url, has_variable) = (self.url.is_some(), self.url_env.is_some());
        let has_program = self.command.first().is_some_and(|program| !program.is_empty());
        if self.events.is_empty() {
            return Some("`events` is empty, so nothing would ever be sent");
        }
        match self.kind {
            NotifyKind::Command if !has_program => {
                Some("the kind `command` needs `command`, a program and its arguments")
            }
            NotifyKind::Command if has_url || has_variable || self.secret_env.is_some() => {
                Some("the kind `command` has only `command`, no `url`, `url_env` or `secret_env`")
            }
            NotifyKind::Command => None,
            _ if !self.command.is_empty() => Some("only the kind `command` has `command`"),
            NotifyKind::Slack if has_url => Some(
                "the address of a Slack webhook is a credential: put it into a variable and name that in `url_env`",
            ),
            NotifyKind::Slack if self.secret_env.is_some() => Some("the kind `slack` has no `secret_env`"),
            _ if has_url == has_variable => Some("it needs either `url` or `url_env`"),
            _ => None,
        }
    }

    /// The variables that hold its secrets.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        [&self.url_env, &self.secret_env]
            .into_iter()
            .filter_map(|name| name.as_deref())
    }
}

/// Each notification is complete, and none comes from the project or the task: they would choose which programs the host starts,
/// which addresses it calls, and which of its secrets it sends there.
pub(super) fn check_notify(stack: &mut LayerStack, settings: &ConfigSettings) {
    let key = KeyPath::parse("notify");
    let origin = stack.entries.get(&key).map(|setting| setting.origin.clone());
    if origin.is_some_and(|origin| !is_of_the_user(&origin)) {
        let reason = "a project or a task cannot set it, because it starts programs and calls addresses on the host; move it \
                      to your user file (`ralph config show` names it)";
        stack.contradiction(&key, reason);
    }
    for (number, notify) in (1..).zip(&settings.notify) {
        if let Some(mistake) = notify.mistake() {
            stack.contradiction(&key, &format!("entry {number}: {mistake}"));
        }
    }
}

pub(super) fn is_of_the_user(origin: &SettingOrigin) -> bool {
    match origin.layer {
        ConfigLayer::Default | ConfigLayer::User | ConfigLayer::Flag => true,
        ConfigLayer::Project | ConfigLayer::Task => false,
        // A `.env` belongs to the project.
        ConfigLayer::Env => matches!(origin.place, SettingPlace::Variable { file: None, .. }),
    }
}
