//! The pages of the dashboard: what the API answers, as HTML.
//!
//! The pages are a client of the API in the same process. Every page asks the API for what it shows, in the name of the
//! person who looks, and every button calls an operation of the API. So they add no capability, and no check is made twice.
//!
//! Everything on a page is text of others: a model, a repository, an issue. Templates escape all of it, and the content
//! security policy allows no script and no style but ours.

mod assets;
mod client;
mod diff;
mod login;
mod run_pages;
mod service_pages;
mod template;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::{Next, from_fn};
use axum::response::Response;

use crate::api::{Api, is_operation};

use client::{ApiClient, PageError};
use template::Page;

/// The API with the pages in front of it.
pub fn router(api: Api) -> Router {
    // A router without routes, so that a page can ask for any path of the API.
    api.router_with_pages(|routes| Router::new().fallback_service(routes).layer(from_fn(pages)))
}

/// Answers requests for pages, and leaves the others to the API.
async fn pages(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if is_operation(&path) {
        return next.run(request).await;
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if let ["assets", name] = parts[..] {
        return assets::asset(name, request.headers());
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let client = ApiClient::new(next, &request);
    let page = match (request.method(), &parts[..]) {
        (&Method::GET, ["login"]) => login::form(&query),
        (&Method::POST, ["login"]) => login::log_in(&client, request).await,
        (&Method::GET | &Method::HEAD, parts) => show(&client, parts, &query).await,
        _ => Err(PageError::not_found()),
    };
    page.unwrap_or_else(|error| error.page())
}

async fn show(client: &ApiClient, parts: &[&str], query: &str) -> Result<Response, PageError> {
    match parts {
        [""] => service_pages::overview(client, query).await,
        ["new"] => service_pages::new_run(client).await,
        ["images"] => service_pages::images(client).await,
        ["workers"] => service_pages::workers(client).await,
        ["settings"] => service_pages::settings(client).await,
        ["credentials"] => service_pages::credentials(client).await,
        ["runs", run] => run_pages::overview(client, run).await,
        ["runs", run, "log"] => run_pages::log(client, run, query).await,
        ["runs", run, "log", "lines"] => run_pages::log_lines(client, run, query).await,
        ["runs", run, "log", "text"] => run_pages::log_text(client.clone(), run, query).await,
        ["runs", run, "task"] => run_pages::task(client, run).await,
        ["runs", run, "notes"] => run_pages::notes(client, run).await,
        ["runs", run, "iterations"] => run_pages::iterations(client, run, query).await,
        ["runs", run, "iterations", number] => run_pages::iteration(client, run, number).await,
        ["runs", run, "compare"] => run_pages::compare(client, run, query).await,
        ["runs", run, "diff"] => run_pages::diff(client, run, query).await,
        ["runs", run, "pull-request"] => run_pages::pull_request(client, run).await,
        ["runs", run, "diagnosis"] => run_pages::diagnosis(client, run).await,
        ["runs", run, "sandbox"] => run_pages::sandbox(client, run).await,
        ["runs", run, "network"] => run_pages::network(client, run).await,
        _ => Err(PageError::not_found()),
    }
}
