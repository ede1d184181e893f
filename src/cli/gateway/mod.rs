//! `ralph gateway`

mod check;
mod run;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use tokio::net::TcpListener;

use crate::assembly::broker::call_exceptions;
use crate::assembly::credentials::connect_upstream;
use crate::credential::CredentialKind;
use crate::gateway::Phantom;
use crate::gateway::broker::{Broker, BrokerHandle, BrokerService};
use crate::gateway::meter::{Allowance, Meter, MeterSetup, MeterSink, PriceList};
use crate::network::HostName;

use super::credentials::CredentialArgs;
use super::{CliError, CliResult, Context, ErrorTopic};
pub(super) use check::GatewayCheck;

/// Serve requests to a model with the stored credential, or check that they would be served
#[derive(Debug, Subcommand)]
pub(super) enum GatewayCommand {
    /// Check the whole path from a sandbox to the service
    Check(check::CheckGatewayArgs),
    /// Serve one agent on the loopback interface until Ctrl-C; prints the address and the phantom as JSON
    Run(run::RunGatewayArgs),
}

pub(super) async fn gateway(context: &Context, command: GatewayCommand) -> CliResult {
    match command {
        GatewayCommand::Check(args) => check::check(context, args).await,
        GatewayCommand::Run(args) => run::run(context, args).await,
    }
}

/// Options that choose the service.
#[derive(Debug, clap::Args)]
struct ServiceArgs {
    #[command(flatten)]
    credential: CredentialArgs,
    /// Forward requests to this address instead of the service's own
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

/// A broker of its own on the loopback interface.
struct LoopbackBroker {
    broker: BrokerHandle,
    kind: CredentialKind,
    /// The address of the service.
    service: String,
    host: HostName,
    phantom: Phantom,
    listener: TcpListener,
    address: SocketAddr,
}

impl LoopbackBroker {
    /// The broker of the configured agent, which does not serve yet. Usage is recorded in `usage_file`.
    async fn open(
        context: &Context,
        service: ServiceArgs,
        port: u16,
        usage_file: PathBuf,
        sink: Arc<dyn MeterSink>,
    ) -> Result<Self, CliError> {
        let (config, kind) = service.credential.kind(context)?;
        let upstream =
            connect_upstream(&context.assembly, &config, kind, service.base_url.as_deref()).await?;
        let (host, address) = (upstream.host.clone(), upstream.address().to_owned());
        let phantom = Phantom::random()
            .map_err(|error| CliError::runtime(error.to_string()).with_topic(ErrorTopic::Credentials))?;
        let broker = Broker::new([BrokerService::Model(upstream)], Vec::new())?;
        let prices = config.profiles.values();
        let prices = prices.filter_map(|profile| Some((profile.litellm_model.clone(), profile.price?)));
        let meter = Meter::open(MeterSetup {
            file: usage_file,
            allowance: Allowance {
                cost: Some(config.settings.budget.max_cost),
                tokens: config.settings.budget.max_tokens_total.map(Into::into),
            },
            prices: PriceList::new(prices),
            sink,
            clock: context.surroundings().clock(),
        })?;
        let failed = |error: std::io::Error| {
            CliError::runtime(format!("cannot listen on 127.0.0.1, port {port}: {error}"))
                .with_topic(ErrorTopic::Credentials)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .map_err(failed)?;
        Ok(Self {
            broker: broker.register(phantom.clone(), meter, call_exceptions(&config)),
            kind,
            service: address,
            host,
            phantom,
            address: listener.local_addr().map_err(failed)?,
            listener,
        })
    }
}
