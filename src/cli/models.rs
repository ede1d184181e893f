//! `ralph models`

use serde::Serialize;

use crate::assembly::agents::agent_of_profile;
use crate::assembly::routes::{ProfileRoute, priced_profiles};
use crate::config::Config;
use crate::model::{PriceTable, Profile};
use crate::usage::Price;

use super::{CliExit, CliResult, Context, configuration};

/// Show the model profiles: the service or endpoint that answers, whether its key is found, and the price
#[derive(Debug, clap::Args)]
pub(super) struct ModelsArgs {
    /// Show the price table that ships with ralph instead
    #[arg(long)]
    prices: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A profile in the output.
#[derive(Serialize)]
struct ModelRow {
    profile: String,
    model: String,
    agent: &'static str,
    /// The service, or the setting with the address; `None` if there is neither.
    route: Option<String>,
    address: Option<String>,
    key_variable: Option<String>,
    key_found: bool,
    input_usd_per_million: Option<f64>,
    output_usd_per_million: Option<f64>,
    price_from: PriceOrigin,
    /// What is missing for calls.
    missing: Option<String>,
}

/// Where a price comes from.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum PriceOrigin {
    Configuration,
    List,
    Local,
    Endpoint,
    Unknown,
}

/// A price of the table in the output.
#[derive(Serialize)]
struct PriceRow {
    model: String,
    input_usd_per_million: f64,
    output_usd_per_million: f64,
}

/// The price table in the output.
#[derive(Serialize)]
struct PriceReport {
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
    let profiles = priced_profiles(&config);
    let rows: Vec<ModelRow> = profiles
        .values()
        .map(|profile| ModelRow::new(&config, profile))
        .collect();
    let lines: Vec<String> = rows.iter().map(ModelRow::describe).collect();
    context.ui.report(args.json, &rows, lines.join("\n"))?;
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

impl ModelRow {
    fn new(config: &Config, profile: &Profile) -> Self {
        let route = ProfileRoute::new(config, profile);
        let (name, address, key_variable, key_found) = match &route {
            ProfileRoute::Endpoint {
                setting,
                url,
                variable,
                key,
            } => (
                Some(setting.clone()),
                Some(url.clone()),
                Some(variable.clone()),
                key.is_some(),
            ),
            ProfileRoute::Direct {
                service,
                url,
                variable,
                key,
            } => (
                Some(service.name.to_owned()),
                Some(url.clone()),
                variable.clone(),
                key.is_some(),
            ),
            ProfileRoute::Unknown { .. } => (None, None, None, false),
        };
        let listed = profile.list_price.map(|price| price.per_million());
        let price = profile.price.or(listed);
        Self {
            profile: profile.name.clone(),
            model: profile.litellm_model.clone(),
            agent: agent_of_profile(config, &profile.name).name,
            route: name,
            address,
            input_usd_per_million: price.map(|price| price.input_per_million.dollars()),
            output_usd_per_million: price.map(|price| price.output_per_million.dollars()),
            price_from: price_origin(profile, &route, listed, key_variable.is_some()),
            key_variable,
            key_found,
            missing: route.missing().map(|missing| missing.why),
        }
    }

    fn describe(&self) -> String {
        let route = match (&self.route, &self.address) {
            (Some(route), Some(address)) => format!("{route} at {address}"),
            _ => "no service".to_owned(),
        };
        let key = match (&self.key_variable, self.key_found) {
            (Some(variable), true) => format!("{variable} found"),
            (Some(variable), false) => format!("{variable} missing"),
            (None, _) if self.route.is_some() => "no key needed".to_owned(),
            (None, _) => "set model_endpoint.base_url".to_owned(),
        };
        let per_million = match (self.input_usd_per_million, self.output_usd_per_million) {
            (Some(input), Some(output)) => format!("${input} in, ${output} out per million tokens"),
            _ => String::new(),
        };
        let price = match self.price_from {
            PriceOrigin::Configuration => format!("{per_million} (set)"),
            PriceOrigin::List => per_million,
            PriceOrigin::Local => "costs nothing: it runs here".to_owned(),
            PriceOrigin::Endpoint => "price reported with each call".to_owned(),
            PriceOrigin::Unknown => "price unknown: set max_tokens_total".to_owned(),
        };
        format!("{:<16} {:<28} {route}; {key}; {price}", self.profile, self.model)
    }
}

fn price_origin(
    profile: &Profile,
    route: &ProfileRoute,
    listed: Option<Price>,
    needs_key: bool,
) -> PriceOrigin {
    match (profile.price, listed) {
        (Some(_), _) => PriceOrigin::Configuration,
        (None, Some(_)) if needs_key => PriceOrigin::List,
        (None, Some(_)) => PriceOrigin::Local,
        (None, None) if route.reports_cost() => PriceOrigin::Endpoint,
        (None, None) => PriceOrigin::Unknown,
    }
}
