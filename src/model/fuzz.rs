//! Fuzz bodies of model calls, which a sandbox sends, and of the responses.

use bytes::Bytes;

use super::service::{CallRules, MODEL_SERVICES, ModelApi, UsageReader};
use crate::usage::{Price, Usd};

/// The body of a call. The first byte says to which API.
pub(crate) fn model_call(bytes: &[u8]) {
    let Some((api, body)) = split_api(bytes) else {
        return;
    };
    let rules = CallRules {
        fields: &[],
        allows_address: &|_| false,
    };
    let path = "/v1beta/models/model:generateContent";
    let Ok(call) = api.parse(path, rules, Bytes::copy_from_slice(body)) else {
        return;
    };
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
    let (number, rest) = bytes.split_first()?;
    let routes = MODEL_SERVICES.iter().flat_map(|service| service.routes);
    let apis: Vec<&ModelApi> = routes.filter_map(|route| route.api).collect();
    Some((apis[usize::from(*number) % apis.len()], rest))
}
