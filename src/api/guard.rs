//! The checks that every request passes before it is routed.
//!
//! A web page of another site can make the user's browser send requests here: by a name that resolves to this host (DNS
//! rebinding), by a form, by a script, by a WebSocket. `Host`, `Origin`, `Sec-Fetch-Site` and the content type show that.
//! `X-Forwarded-*` is not read: anyone can send it.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use super::access::Caller;
use super::problem::Problem;
use super::{Api, ApiSettings};

/// What needs neither token nor session.
const PUBLIC: [&str; 2] = ["/api/health", "/api/login"];

/// The page that a login link leads to. Its form works without a script, so it is no JSON.
const LOGIN_PAGE: &str = "/login";

/// Where the script and the style of the pages are.
const ASSETS: &str = "/assets/";

/// The longest path and query, in bytes.
const LONGEST_TARGET: usize = 8 * 1024;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What every answer has: a browser neither guesses its type, nor shows it elsewhere, nor keeps it.
const RESPONSE_HEADERS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; frame-ancestors 'none'",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Checks a request, finds out who sends it, and routes it.
pub(super) async fn check(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let mut response = match admit(&api, request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal,
    };
    for (name, value) in RESPONSE_HEADERS {
        // A page has a policy of its own.
        let header = response.headers_mut().entry(name);
        header.or_insert(HeaderValue::from_static(value));
    }
    if is_chunked {
        // A proxy may see another end of the body than we do, and what follows is then another client's (RFC 9112, 6.1).
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// The request with who sends it, or the answer that refuses it.
async fn admit(api: &Api, mut request: Request) -> Result<Request, Response> {
    let acts = acts(request.method(), request.headers());
    check_form(api, &request, acts).map_err(IntoResponse::into_response)?;
    let path = request.uri().path();
    let is_public_page = api.has_pages && (path == LOGIN_PAGE || path.starts_with(ASSETS));
    if is_public_page || PUBLIC.contains(&path) {
        return Ok(request);
    }
    let headers = request.headers();
    let caller = match Caller::find(&api.store, headers).await {
        Ok(caller) => caller,
        Err(_) if is_page(api, path) && !acts => return Err(Redirect::to(LOGIN_PAGE).into_response()),
        Err(problem) => return Err(problem.into_response()),
    };
    if caller.by_cookie && acts && !headers.contains_key(header::ORIGIN) {
        let problem = Problem::forbidden("a request with a login session has no `Origin`");
        return Err(problem.into_response());
    }
    request.extensions_mut().insert(caller);
    Ok(request)
}

/// Refuses requests that are not made as a client of ours makes them.
fn check_form(api: &Api, request: &Request, acts: bool) -> Result<(), Problem> {
    let (uri, headers) = (request.uri(), request.headers());
    check_target(uri)?;
    let host = check_host(&api.settings, uri, headers)?;
    check_origin(&api.settings, &host, headers, acts)?;
    if api.has_pages && uri.path() == LOGIN_PAGE && acts {
        // The form of a page of another site must not log a person in.
        let missing = || Problem::forbidden("the form has no `Origin`");
        return headers.get(header::ORIGIN).map(|_| ()).ok_or_else(missing);
    }
    check_content_type(request.method(), headers)
}

/// Whether a path belongs to the pages.
fn is_page(api: &Api, path: &str) -> bool {
    api.has_pages && !is_operation(path)
}

/// Whether a path belongs to the operations of the API.
pub(crate) fn is_operation(path: &str) -> bool {
    path.starts_with("/api/") || path == "/metrics"
}

/// Whether a request does more than read.
fn acts(method: &Method, headers: &HeaderMap) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) || headers.contains_key(header::UPGRADE)
}

/// Refuses paths that two parts of the program could read in two ways. There is one spelling of each path.
fn check_target(uri: &Uri) -> Result<(), Problem> {
    let length = uri.path().len() + uri.query().map_or(0, str::len);
    if length > LONGEST_TARGET {
        return Err(Problem::new(StatusCode::URI_TOO_LONG, "the URI is too long"));
    }
    let path = uri.path().to_ascii_lowercase();
    let is_ambiguous = ["//", "\\", ";", "%2e", "%2f", "%5c", "%25", "%00"]
        .iter()
        .any(|part| path.contains(part));
    let has_dots = path.split('/').any(|part| matches!(part, "." | ".."));
    if is_ambiguous || has_dots || !path.starts_with('/') {
        return Err(Problem::bad_request("the path is not in its normal form"));
    }
    Ok(())
}

/// The host that the request is for, with its port, if it is one of this service.
fn check_host(settings: &ApiSettings, uri: &Uri, headers: &HeaderMap) -> Result<String, Problem> {
    let mut values = headers.get_all(header::HOST).iter();
    let (first, second) = (values.next(), values.next());
    let host = first.and_then(|host| host.to_str().ok());
    let (Some(host), None) = (host, second) else {
        return Err(Problem::bad_request("the request needs one `Host`"));
    };
    let host = host.to_ascii_lowercase();
    let other = uri
        .authority()
        .is_some_and(|named| !named.as_str().eq_ignore_ascii_case(&host));
    if other || !is_own_host(settings, &host) {
        return Err(
            Problem::forbidden(format!("`{}` is not a name of this service", host.escape_debug())).with_hint(
                "add the name to api.allowed_hosts if a proxy or a DNS name of your own leads here",
            ),
        );
    }
    Ok(host)
}

fn is_own_host(settings: &ApiSettings, host: &str) -> bool {
    let name = without_port(host);
    let allowed = &settings.allowed_hosts;
    if allowed
        .iter()
        .any(|own| own.eq_ignore_ascii_case(host) || own.eq_ignore_ascii_case(name))
    {
        return true;
    }
    let literal = name.trim_start_matches('[').trim_end_matches(']');
    match literal.parse::<IpAddr>() {
        Ok(address) => {
            let is_bound = |bound: IpAddr| bound == address || bound.is_unspecified();
            address.is_loopback() || settings.bound.is_some_and(is_bound)
        }
        Err(_) => name == "localhost",
    }
}

fn without_port(host: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

/// Refuses requests that a page of another origin makes.
fn check_origin(settings: &ApiSettings, host: &str, headers: &HeaderMap, acts: bool) -> Result<(), Problem> {
    let site = headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        return Err(Problem::forbidden("a page of another site made this request"));
    }
    let Some(origin) = headers.get(header::ORIGIN).filter(|_| acts) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
    let is_own = ["http://", "https://"]
        .iter()
        .any(|scheme| origin.strip_prefix(scheme) == Some(host));
    let is_allowed = |allowed: &String| allowed.trim_end_matches('/').eq_ignore_ascii_case(&origin);
    if is_own || settings.allowed_origins.iter().any(is_allowed) {
        return Ok(());
    }
    let shown = origin.escape_debug();
    Err(
        Problem::forbidden(format!("a page of the origin `{shown}` may not use this service")).with_hint(
            "add it to api.allowed_origins if it is yours, for example that of a proxy that replaces `Host`",
        ),
    )
}

/// Refuses bodies that a plain form or a script without permission could send.
fn check_content_type(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let length = headers.get(header::CONTENT_LENGTH).map(HeaderValue::as_bytes);
    let has_body = !matches!(length, None | Some(b"0")) || headers.contains_key(header::TRANSFER_ENCODING);
    let needed = match *method {
        Method::POST | Method::PUT | Method::PATCH => true,
        Method::DELETE => has_body,
        _ => false,
    };
    let given = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.split(';').next()).map(str::trim);
    if needed && !given.is_some_and(|given| given.eq_ignore_ascii_case("application/json")) {
        let detail = "the body must be `application/json`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    Ok(())
}
