//! Where contracts are tried: benches that one after another is tried on, for as long as each leaves its bench well.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::bench::{Bench, Tidied, in_time};
use crate::judged::JudgedDaytona;
use crate::support::skip;

/// What every provider must keep.
#[derive(Clone, Copy)]
pub struct Contract {
    pub name: &'static str,
    pub wants: Wants,
    pub check: for<'a> fn(&'a Bench) -> LocalBoxFuture<'a, ()>,
}

/// What a contract is tried on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// A sandbox that others were tried on: making one takes far longer than most contracts.
    Any,
    /// One that nobody has used, nor will.
    Fresh,
}

/// Makes a bench of one provider, or says why there is none here.
pub type Make = for<'a> fn(&'a Yard) -> BoxFuture<'a, Result<Bench, String>>;

pub struct Yard {
    /// One for all: what a bench started lives as long as the runtime it was started on.
    runtime: Runtime,
    /// The benches that nobody uses, by provider.
    idle: Mutex<HashMap<&'static str, Vec<Bench>>>,
    /// What all benches of `daytona` are at, from the first of them on.
    daytona: OnceCell<Arc<JudgedDaytona>>,
}

impl Yard {
    pub fn open() -> Self {
        Self {
            runtime: Runtime::new().unwrap(),
            idle: Mutex::default(),
            daytona: OnceCell::new(),
        }
    }

    /// Tries a contract with a provider; fails where it is not kept.
    pub fn try_out(&self, contract: Contract, (provider, make): (&'static str, Make), name: &str) {
        self.runtime.block_on(async {
            let idle = match contract.wants {
                Wants::Any => self.idle().entry(provider).or_default().pop(),
                Wants::Fresh => None,
            };
            let bench = match idle {
                Some(bench) => Ok(bench),
                None => make(self).await,
            };
            let mut bench = match bench {
                Ok(bench) => bench,
                Err(reason) => return skip::record_as(name, &reason),
            };
            let tried = AssertUnwindSafe(in_time((contract.check)(&bench)))
                .catch_unwind()
                .await;
            let again = tried.is_ok() && contract.wants == Wants::Any;
            if again && in_time(bench.tidy()).await == Tidied::Yes {
                self.idle().entry(provider).or_default().push(bench);
                return;
            }
            let closed = in_time(bench.sandbox.close()).await;
            if let Err(panic) = tried {
                resume_unwind(panic);
            }
            closed.unwrap();
        });
    }

    /// The Daytona that is here, or why there is none.
    pub async fn daytona(&self) -> Result<&JudgedDaytona, String> {
        let start = || async { JudgedDaytona::start().await.map(Arc::new) };
        self.daytona.get_or_try_init(start).await.map(Arc::as_ref)
    }

    /// The Daytona that contracts were tried at, if any were.
    pub fn tried_daytona(&self) -> Option<Arc<JudgedDaytona>> {
        self.daytona.get().cloned()
    }

    /// Closes what is left.
    pub fn close(&self) {
        let benches = std::mem::take(&mut *self.idle());
        self.runtime.block_on(async {
            for bench in benches.into_values().flatten() {
                in_time(bench.sandbox.close()).await.unwrap();
            }
        });
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Vec<Bench>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
