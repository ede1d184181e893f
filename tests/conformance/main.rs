//! The contract of sandboxes, tested for every provider.
//!
//! Each function that takes a [`bench::Bench`] is one clause of the contract. The list at the top of its file makes it a
//! test for every provider, named `area::contract::provider`. A new provider is one line in [`bench::PROVIDERS`]. The last
//! test validates all requests to Daytona against its OpenAPI documents.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
)]

/// Lists functions as contracts, by the kind of bench that they need.
macro_rules! contract {
    ($($bench:ident: $($check:ident),+);+) => {
        pub fn contracts() -> Vec<crate::bench_pool::Contract> {
            vec![$($(crate::bench_pool::Contract {
                name: concat!(module_path!(), "::", stringify!($check)),
                bench: crate::bench_pool::BenchKind::$bench,
                check: |bench| Box::pin($check(bench)),
            }),+),+]
        }
    };
}

mod bench;
mod environment;
mod evidence;
mod exec;
mod files;
mod life;
mod output;
mod validated_daytona;
use ::support;
mod bench_pool;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Conclusion, Trial};

use bench::PROVIDERS;
use bench_pool::{BenchPool, Contract};

/// Tests mostly wait, so more of them run at once than there are processors.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let pool = Arc::new(BenchPool::open());
    let contracts = [
        environment::contracts(),
        evidence::contracts(),
        exec::contracts(),
        files::contracts(),
        life::contracts(),
        output::contracts(),
    ];
    // Consecutive tests use different providers, so that few of them wait for the same one.
    let trials = contracts
        .into_iter()
        .flatten()
        .flat_map(|contract| trials(&pool, contract));
    let tested = libtest_mimic::run(&arguments, trials.collect());
    pool.close();
    // The requests to Daytona are validated after all tests, regardless of the filter.
    let validated = pool.used_daytona().map(|daytona| {
        let all = Arguments {
            filter: None,
            skip: Vec::new(),
            ..arguments
        };
        libtest_mimic::run(&all, vec![daytona.validation()])
    });
    let mut conclusions = [Some(tested), validated].into_iter().flatten();
    let failed = conclusions.find(Conclusion::has_failed);
    failed.map_or(ExitCode::SUCCESS, |failed| failed.exit_code())
}

fn trials(pool: &Arc<BenchPool>, contract: Contract) -> Vec<Trial> {
    let trial = |(provider, make)| {
        let area = contract.name.trim_start_matches("conformance::");
        let (name, pool) = (format!("{area}::{provider}"), Arc::clone(pool));
        Trial::test(name.clone(), move || {
            pool.test(contract, provider, make, &name);
            Ok(())
        })
    };
    PROVIDERS.map(trial).into()
}
