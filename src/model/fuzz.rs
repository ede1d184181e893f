//! Fuzz bodies of model calls, which a sandbox sends, and of the responses.

use bytes::Bytes;

use super::service::{CallRules, MODEL_SERVICES, ModelApi, ModelRoute, ModelService, UsageReader};
use crate::usage::{Price, Usd};

/// A call. The first byte says by which route. The name in its path is before a NUL, or `model`; the body is the rest.
pub(crate) fn model_call(bytes: &[u8]) {
    let Some((service, route, rest)) = split_route(bytes) else {
        return;
    };
    let Some(api) = route.api else { return };
    let (name, body) = match rest.iter().position(|byte| *byte == 0) {
        Some(end) => (&*String::from_utf8_lossy(&rest[..end]), &rest[end + 1..]),
        None => ("model", rest),
    };
    let path = &route.path.replace('*', name);
    if service.route(route.method, path).is_none() {
        return;
    }
    // No two routes match a path, and nothing in it leads to another one.
    let matching = service
        .routes
        .iter()
        .filter(|other| other.matches(route.method, path));
    assert_eq!(matching.count(), 1, "{path}");
    assert_eq!(
        path.matches('/').count(),
        route.path.matches('/').count(),
        "{path}"
    );
    let rules = CallRules {
        fields: &[],
        allows_address: &|_| false,
    };
    let Ok(call) = api.parse(path, rules, Bytes::copy_from_slice(body)) else {
        return;
    };
    if route.path.contains('*') {
        assert_eq!(call.model, name);
    }
    // What is forwarded is what was checked: it is accepted again, and costs no more.
    let again = api.parse(path, rules, call.body.clone());
    let again = again.unwrap_or_else(|error| panic!("{error}: {:?}", call.body));
    assert_eq!(again.model, call.model);
    assert_eq!(again.body, call.body);
    assert_eq!(again.worst.tokens.output, call.worst.tokens.output);
}

/// A response. The first byte says of which API, the second in which format.
pub(crate) fn model_response(bytes: &[u8]) {
    let Some((api, rest)) = split_api(bytes) else {
        return;
    };
    let Some((format, body)) = rest.split_first() else {
        return;
    };
    let format = ["text/event-stream", "application/json"][usize::from(format % 2)];
    let usage = |pieces: &[&[u8]]| {
        let mut reader = UsageReader::new(api, format, None);
        for piece in pieces {
            reader.push(piece);
        }
        (reader.is_over(), reader.finish(true))
    };
    let whole = usage(&[body]);
    for cut in [1, body.len() / 2] {
        let (first, second) = body.split_at(cut.min(body.len()));
        assert_eq!(usage(&[first, second]), whole, "cut at {cut}");
    }
    if let Some(usage) = whole.1 {
        let price = Price {
            input_per_million: Usd::from_cents(300),
            output_per_million: Usd::from_cents(1500),
        };
        let _ = (usage.cost_at(price), usage.tokens());
    }
}

fn split_api(bytes: &[u8]) -> Option<(&'static ModelApi, &[u8])> {
    let (_, route, rest) = split_route(bytes)?;
    Some((route.api?, rest))
}

/// The route of metered calls that the first byte names, and the bytes after it.
fn split_route(bytes: &[u8]) -> Option<(&'static ModelService, &'static ModelRoute, &[u8])> {
    let (number, rest) = bytes.split_first()?;
    let routes = MODEL_SERVICES
        .iter()
        .flat_map(|service| service.routes.iter().map(move |route| (*service, route)));
    let metered: Vec<(&ModelService, &ModelRoute)> =
        routes.filter(|(_, route)| route.api.is_some()).collect();
    let (service, route) = metered[usize::from(*number) % metered.len()];
    Some((service, route, rest))
}
