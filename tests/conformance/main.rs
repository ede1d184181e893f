//! One body of tests, run for every provider.
//!
//! A contract is a plain function that takes a [`bench::Bench`]; the list at the top of its file makes it a test for
//! every provider, named `area::contract::provider`. A new provider is one line in [`bench::PROVIDERS`]. Whether all that was
//! asked of Daytona is as Daytona's own documents say is one more test, after all others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests look at the machine they run on and stop where they stand"
)]

/// Makes each function a contract, which is tried on such a bench.
macro_rules! contract {
    ($($wants:ident: $($check:ident),+);+) => {
        pub fn contracts() -> Vec<crate::yard::Contract> {
            vec![$($(crate::yard::Contract {
                name: concat!(module_path!(), "::", stringify!($check)),
                wants: crate::yard::Wants::$wants,
                check: |bench| Box::pin($check(bench)),
            }),+),+]
        }
    };
}

mod bench;
mod environment;
mod exec;
mod files;
mod judged;
mod life;
mod output;
use ::support;
mod yard;

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Conclusion, Trial};

use bench::PROVIDERS;
use yard::{Contract, Yard};

/// Most of the time is spent waiting, so more at once than there are processors.
const THREADS: usize = 4;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let yard = Arc::new(Yard::open());
    let contracts = [
        environment::contracts(),
        exec::contracts(),
        files::contracts(),
        life::contracts(),
        output::contracts(),
    ];
    // Provider by provider for each contract, so that few of them wait for a bench of the same one.
    let trials = contracts
        .into_iter()
        .flatten()
        .flat_map(|contract| trials(&yard, contract));
    let tried = libtest_mimic::run(&arguments, trials.collect());
    yard.close();
    // Whatever was tried at Daytona is judged when all of it is over, whichever contracts these were.
    let judged = yard.tried_daytona().map(|daytona| {
        let all = Arguments {
            filter: None,
            skip: Vec::new(),
            ..arguments
        };
        libtest_mimic::run(&all, vec![daytona.verdict()])
    });
    let mut conclusions = [Some(tried), judged].into_iter().flatten();
    let failed = conclusions.find(Conclusion::has_failed);
    failed.map_or(ExitCode::SUCCESS, |failed| failed.exit_code())
}

fn trials(yard: &Arc<Yard>, contract: Contract) -> Vec<Trial> {
    let trial = |(provider, make)| {
        let area = contract.name.trim_start_matches("conformance::");
        let (name, yard) = (format!("{area}::{provider}"), Arc::clone(yard));
        Trial::test(name.clone(), move || {
            yard.try_out(contract, (provider, make), &name);
            Ok(())
        })
    };
    PROVIDERS.map(trial).into()
}
