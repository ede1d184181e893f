//! Runs contracts on benches. A bench is reused as long as each contract leaves it clean.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::bench::{Bench, in_time};
use crate::support::skip;
use crate::validated_daytona::ValidatedDaytona;

/// A rule that every provider must follow.
#[derive(Clone, Copy)]
pub struct Contract {
    pub name: &'static str,
    pub bench: BenchKind,
    pub check: for<'a> fn(&'a Bench) -> LocalBoxFuture<'a, ()>,
}

/// The bench that a contract needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum BenchKind {
    /// A sandbox that other contracts have used. Creating one takes much longer than most contracts.
    Any,
    /// A new sandbox, which is not reused.
    Fresh,
}

/// Creates a bench of one provider. The error is the reason to skip the test.
pub type CreateBench = for<'a> fn(&'a BenchPool) -> BoxFuture<'a, Result<Bench, String>>;

pub struct BenchPool {
    /// Shared, because the tasks of a bench live only as long as their runtime.
    runtime: Runtime,
    /// Unused benches by provider.
    idle: Mutex<HashMap<&'static str, Vec<Bench>>>,
    /// The fake Daytona of all `daytona` benches.
    daytona: OnceCell<Arc<ValidatedDaytona>>,
}

impl BenchPool {
    pub fn open() -> Self {
        Self {
            runtime: Runtime::new().unwrap(),
            idle: Mutex::default(),
            daytona: OnceCell::new(),
        }
    }

    /// Tests a contract with a provider. Panics if the contract is violated.
    pub fn test(&self, contract: Contract, provider: &'static str, create: CreateBench, name: &str) {
        self.runtime.block_on(async {
            let idle = match contract.bench {
                BenchKind::Any => self.idle().entry(provider).or_default().pop(),
                BenchKind::Fresh => None,
            };
            let bench = match idle {
                Some(bench) => Ok(bench),
                None => create(self).await,
            };
            let mut bench = match bench {
                Ok(bench) => bench,
                Err(reason) => return skip::record_as(name, &reason),
            };
            let tested = AssertUnwindSafe(in_time((contract.check)(&bench)))
                .catch_unwind()
                .await;
            let reusable = tested.is_ok() && contract.bench == BenchKind::Any;
            if reusable && in_time(bench.clean()).await {
                self.idle().entry(provider).or_default().push(bench);
                return;
            }
            let closed = in_time(bench.sandbox.close()).await;
            if let Err(panic) = tested {
                resume_unwind(panic);
            }
            closed.unwrap();
        });
    }

    /// Starts the fake Daytona, once. The error is the reason to skip the test.
    pub async fn daytona(&self) -> Result<&ValidatedDaytona, String> {
        let start = || async { ValidatedDaytona::start().await.map(Arc::new) };
        self.daytona.get_or_try_init(start).await.map(Arc::as_ref)
    }

    /// The fake Daytona, if a contract used it.
    pub fn used_daytona(&self) -> Option<Arc<ValidatedDaytona>> {
        self.daytona.get().cloned()
    }

    /// Closes all unused benches.
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
