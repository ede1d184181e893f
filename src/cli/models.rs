//! `ralph models`

use schemars::JsonSchema;
use serde::Serialize;

use crate::assembly::agents::agent_of_profile;
use crate::assembly::litellm_config::litellm_config;
use crate::assembly::routes::uncallable;
use crate::assembly::{ModelOverview, PriceOrigin};
use crate::model::PriceTable;

use super::{CliExit, CliResult, Context, configuration};

/// Show the model profiles: the service or endpoint that answers, whether its key is found, and the price
#[derive(Debug, clap::Args)]
pub(super) struct ModelsArgs {
    /// Show the price table that ships with ralph instead
    #[arg(long)]
    prices: bool,
    /// Print a configuration of LiteLLM that serves the models of the profiles
    #[arg(long, conflicts_with_all = ["prices", "json"])]
    litellm: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A price of the table in the output.
#[derive(Serialize, JsonSchema)]
struct PriceRow {
    model: String,
    input_usd_per_million: f64,
    output_usd_per_million: f64,
}

/// The price table in the output.
#[derive(Serialize, JsonSchema)]
pub(super) struct PriceReport {
    release: &'static str,
    file: &'static str,
    license: &'static str,
    retrieved: &'static str,
    sources: &'static [String],
    models: Vec<PriceRow>,
}

pub(super) fn models(context: &Context, args: &ModelsArgs) -> CliResult {
    if args.prices {
        return prices(context, args.json);
    }
    let config = configuration(context, Vec::new())?;
    if args.litellm {
        context.ui.data(litellm_config(&config).trim_end())?;
        return Ok(CliExit::Success);
    }
    let rows = ModelOverview::of_config(&config);
    let lines: Vec<String> = rows.iter().map(describe).collect();
    context.ui.report(args.json, &rows, lines.join("\n"))?;
    let profile = &config.settings.default_profile;
    let agent = agent_of_profile(&config, profile);
    context.ui.next(match uncallable(&config, profile) {
        Some(missing) => format!("{}; {}", missing.why, missing.next_step),
        None if agent.is_built_in => format!("`ralph run` starts with the profile `{profile}`"),
        None => format!("`ralph doctor env` shows whether `{}` can log in", agent.name),
    });
    Ok(CliExit::Success)
}

fn prices(context: &Context, json: bool) -> CliResult {
    let table = PriceTable::shipped();
    let row = |(model, price): (&String, &crate::model::ListPrice)| PriceRow {
        model: model.clone(),
        input_usd_per_million: price.per_million().input_per_million.dollars(),
        output_usd_per_million: price.per_million().output_per_million.dollars(),
    };
    let report = PriceReport {
        release: &table.release,
        file: &table.file,
        license: &table.license,
        retrieved: &table.retrieved,
        sources: &table.sources,
        models: table.models.iter().map(row).collect(),
    };
    let mut lines = vec![format!(
        "US dollars per million tokens in and out, from {} (retrieved {}); [models.NAME] sets others",
        report.release, report.retrieved
    )];
    lines.extend(report.models.iter().map(|row| {
        format!(
            "{:<32} {:>7} {:>7}",
            row.model, row.input_usd_per_million, row.output_usd_per_million
        )
    }));
    context.ui.report(json, &report, lines.join("\n"))?;
    Ok(CliExit::Success)
}

fn describe(row: &ModelOverview) -> String {
    let route = match (&row.route, &row.address) {
        (Some(route), Some(address)) => format!("{route} at {address}"),
        _ => "no service".to_owned(),
    };
    let key = match (&row.key_variable, row.key_found) {
        (Some(variable), true) => format!("{variable} found"),
        (Some(variable), false) => format!("{variable} missing"),
        (None, _) if row.route.is_some() => "no key needed".to_owned(),
        (None, _) => "set model_endpoint.base_url".to_owned(),
    };
    let per_million = match (row.input_usd_per_million, row.output_usd_per_million) {
        (Some(input), Some(output)) => format!("${input} in, ${output} out per million tokens"),
        _ => String::new(),
    };
    let price = match row.price_from {
        PriceOrigin::Configuration => format!("{per_million} (set)"),
        PriceOrigin::List => per_million,
        PriceOrigin::Local => "costs nothing: it runs here".to_owned(),
        PriceOrigin::Endpoint => "price reported with each call".to_owned(),
        PriceOrigin::Unknown => "price unknown: set max_tokens_total".to_owned(),
    };
    format!("{:<16} {:<28} {route}; {key}; {price}", row.profile, row.model)
}
