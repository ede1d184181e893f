//! The API: what command line and library can do with runs, over HTTP and one WebSocket.
//!
//! It adds no capability. Each handler is a few lines over [`crate::assembly`], and every request passes the checks of
//! `guard` before it is routed. Events are read from the files of the runs, so a client never slows a run.

mod access;
mod change;
mod create;
mod elsewhere;
mod export;
mod extract;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod guard;
mod host;
mod iterations;
mod lint;
mod log;
mod login;
mod metrics;
mod openapi;
mod operation;
mod operations;
mod problem;
mod run_list;
mod run_news;
mod runs;
mod serve;
mod sgr;
mod share;
mod socket;
mod steer;
mod tail;
mod watched_log;

use std::net::IpAddr;
use std::sync::Arc;

use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};

use crate::assembly::{AssemblyError, DashboardMode, RunControl, Surroundings};
use crate::metrics::Metrics;
use crate::secret::Secret;
use crate::service::RunIndex;
use crate::store::{ApiScope, Store};

pub use access::{LOGIN_LINK, new_secret};
pub(crate) use export::page_templates;
pub(crate) use guard::is_operation;
pub use openapi::openapi;
pub use serve::{ApiListener, ListenAddress};

use access::{Caller, LoginLimit};
use run_news::{RunNews, new_run_news, report_changes};
use share::VisitorRedactors;
use tail::Tails;
use watched_log::MirroredLogs;

/// Who may talk to the API, besides what tokens decide.
#[derive(Clone, Debug, Default)]
pub struct ApiSettings {
    /// The address that it is bound to; `None` for a socket file.
    pub bound: Option<IpAddr>,
    /// Further names that a `Host` header may have.
    pub allowed_hosts: Vec<String>,
    /// Further origins of pages that may use it.
    pub allowed_origins: Vec<String>,
    /// Whether callers from other hosts may change runs that have no isolation.
    pub dangerously_allow_local: bool,
    /// How much callers may ask of runs, besides what their scopes decide.
    pub mode: DashboardMode,
}

impl ApiSettings {
    /// Whether other hosts can reach it.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        self.bound.is_some_and(|address| !address.is_loopback())
    }

    /// Whether a proxy is expected in front of it, through which other hosts can reach it.
    fn has_proxy(&self) -> bool {
        !self.allowed_hosts.is_empty() || !self.allowed_origins.is_empty()
    }
}

/// The API over the runs of one user.
pub struct Api {
    surroundings: Surroundings,
    store: Store,
    settings: ApiSettings,
    logins: LoginLimit,
    tails: Tails,
    /// Events of runs on other hosts; `None` if no other host uses the store.
    mirrored: Option<MirroredLogs>,
    index: Arc<RunIndex>,
    news: RunNews,
    /// Whether there are pages besides the API.
    has_pages: bool,
    metrics: Metrics,
    visitor_redactors: VisitorRedactors,
}

impl Api {
    /// An API over the runs of these surroundings. The store decides who may use it.
    pub fn new(
        surroundings: Surroundings,
        store: Store,
        settings: ApiSettings,
    ) -> Result<Self, AssemblyError> {
        let index = RunIndex::new(surroundings.clone(), store.clone())?;
        let mirrored = store.is_shared().then(MirroredLogs::new).transpose()?;
        Ok(Self {
            surroundings,
            store,
            settings,
            logins: LoginLimit::default(),
            tails: Tails::default(),
            mirrored,
            index: Arc::new(index),
            news: new_run_news(),
            has_pages: false,
            metrics: Metrics::default(),
            visitor_redactors: VisitorRedactors::default(),
        })
    }

    /// Serves these counts at `/metrics`.
    #[must_use]
    pub fn metrics(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// The index of runs that it answers from.
    pub(crate) fn index(&self) -> Arc<RunIndex> {
        self.index.clone()
    }

    /// Everything that it serves, behind its checks. Keeps the index of runs in step until it is dropped, so a runtime must
    /// be there.
    pub fn router(self) -> Router {
        self.checked(|routes| routes)
    }

    /// The same with pages, behind the same checks. `add` puts them in front of the operations.
    pub(crate) fn router_with_pages(mut self, add: impl FnOnce(Router) -> Router) -> Router {
        self.has_pages = true;
        self.checked(add)
    }

    /// The operations alone, for the user of this process: without the checks that requests from a network need. Keeps the
    /// index of runs in step until it is dropped, so a runtime must be there.
    pub(crate) fn local_router(self, user: &str) -> Router {
        let caller = Caller {
            name: user.to_owned(),
            scope: ApiScope::Admin,
            run: None,
            by_cookie: false,
            is_forwarded: false,
            secret: Secret::new(""),
        };
        let api = Arc::new(self);
        tokio::spawn(RunIndex::follow(Arc::downgrade(&api.index)));
        operation::router(operations::operations(), api.settings.mode)
            .with_state(api)
            .layer(Extension(caller))
    }

    fn checked(self, add: impl FnOnce(Router) -> Router) -> Router {
        let api = Arc::new(self);
        tokio::spawn(report_changes(&api.index, api.store.clone(), api.news.clone()));
        tokio::spawn(RunIndex::follow(Arc::downgrade(&api.index)));
        let routed = operation::router(operations::operations(), api.settings.mode)
            .layer(from_fn_with_state(api.clone(), share::hide_secrets))
            .with_state(api.clone());
        // A router without routes, so that the checks run before any path is matched.
        Router::new()
            .fallback_service(add(routed))
            .layer(from_fn_with_state(api, guard::check))
    }

    /// The operations on runs, in the name of a caller.
    fn control(&self, caller: &Caller) -> RunControl {
        RunControl::new(self.surroundings.clone()).asked_by(&caller.name)
    }
}
