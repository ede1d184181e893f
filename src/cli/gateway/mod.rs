//! `ralph gateway`

mod check;
mod run;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use clap::Subcommand;
use tokio::net::TcpListener;

use crate::assembly::credentials::upstream;
use crate::clock;
use crate::config::Config;
use crate::credential::CredentialKind;
use crate::gateway::Phantom;
use crate::gateway::broker::{Broker, BrokerHandle};
use crate::gateway::meter::{Allowance, Meter, MeterSetup, MeterSink, PriceList};
use crate::network::HostName;

use super::Context;
use super::credentials::Which;
use super::error::{CliError, Exit};

/// Serve calls to a model with the stored credential, or check that they would be served
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Try the whole way from a sandbox to the service, and say what holds
    Check(check::Args),
    /// Serve one agent on loopback until Ctrl-C: prints the address to use and the phantom to show, as JSON
    Run(run::Args),
}

pub(super) async fn gateway(context: &Context, args: Args) -> Result<Exit, CliError> {
    match args.what {
        What::Check(args) => check::check(context, args).await,
        What::Run(args) => run::run(context, args).await,
    }
}

/// Options that say whose calls are served.
#[derive(Debug, clap::Args)]
struct Served {
    #[command(flatten)]
    which: Which,
    /// Forward calls there in place of the service's own address
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

/// An entrance of its own on loopback.
struct Loopback {
    entrance: BrokerHandle,
    kind: CredentialKind,
    host: HostName,
    phantom: Phantom,
    listener: TcpListener,
    address: SocketAddr,
}

impl Loopback {
    /// The broker of the configured agent, before it serves anybody. What calls cost is kept in `file`.
    async fn open(
        context: &Context,
        served: Served,
        port: u16,
        meter: Metered<'_>,
    ) -> Result<Self, CliError> {
        let (config, kind) = served.which.kind(context)?;
        let upstream = upstream(&context.assembly, &config, kind, served.base_url.as_deref()).await?;
        let host = upstream.host.clone();
        let phantom = Phantom::random().map_err(|error| CliError::runtime(error.to_string()))?;
        let broker = Broker::new(vec![upstream], Vec::new())?;
        let meter = meter.open(&config)?;
        let failed = |error: std::io::Error| {
            CliError::runtime(format!("cannot listen on 127.0.0.1, port {port}: {error}"))
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(failed)?;
        Ok(Self {
            entrance: broker.register(phantom.clone(), meter),
            kind,
            host,
            phantom,
            address: listener.local_addr().map_err(failed)?,
            listener,
        })
    }
}

/// Where what calls cost goes.
struct Metered<'a> {
    file: &'a Path,
    sink: Arc<dyn MeterSink>,
}

impl Metered<'_> {
    fn open(self, config: &Config) -> Result<Meter, CliError> {
        let budget = &config.settings.budget;
        let prices = config.profiles.values();
        let prices = prices.filter_map(|profile| Some((profile.litellm_model.clone(), profile.price?)));
        Ok(Meter::open(MeterSetup {
            file: self.file.to_owned(),
            allowance: Allowance {
                cost: Some(budget.max_cost),
                tokens: budget.max_tokens_total.map(Into::into),
            },
            prices: PriceList::new(prices),
            sink: self.sink,
            clock: clock::system(),
        })?)
    }
}
