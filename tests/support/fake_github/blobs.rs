//! The store of job logs, on another address than the API, which does not want the API's credential.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;

use super::world::JobLog;
use super::{Asked, Shared};

pub(super) async fn answer(shared: Arc<Shared>, asked: Asked) -> io::Result<Response<Body>> {
    Ok(read(&shared, &asked))
}

fn read(shared: &Shared, asked: &Asked) -> Response<Body> {
    if asked.head.headers.contains_key("authorization") {
        return failure(401, "InvalidAuthenticationInfo");
    }
    let path = asked.head.uri.path();
    let number = path.rsplit('/').next().and_then(|number| number.parse().ok());
    let world = shared.world();
    let log = number.and_then(|number| world.repos.iter().find_map(|repo| repo.job_logs.get(&number)));
    match log {
        Some(JobLog::Text(text)) => Response::builder()
            .header("content-type", "text/plain; charset=utf-8")
            .body(Body::from(text.clone()))
            .unwrap(),
        _ => failure(404, "BlobNotFound"),
    }
}

fn failure(status: u16, code: &str) -> Response<Body> {
    let text = format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code></Error>");
    Response::builder()
        .status(status)
        .header("content-type", "application/xml")
        .body(Body::from(text))
        .unwrap()
}
