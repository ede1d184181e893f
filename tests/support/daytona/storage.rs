//! The object store: temporary credentials, signed requests, and the archives that builds take their files from. It speaks
//! as much of S3 as Daytona's SDK uses, with the bucket in the path.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use ralph::engine::Digest;
use ring::hmac;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{Refusal, Shared};

/// The credentials that the control plane gives away.
pub const CREDENTIALS: [&str; 3] = [ACCESS_KEY, SECRET, SESSION_TOKEN];
const ACCESS_KEY: &str = "ASIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const SESSION_TOKEN: &str = "FwoGZXIvYXdzEXAMPLE+session/token==";
const BUCKET: &str = "daytona-volume-builds";
const ORGANISATION: &str = "00000000-0000-0000-0000-000000000001";
const REGION: &str = "us-east-2";

/// How many seconds the clock of a client may be wrong.
const SKEW: i64 = 15 * 60;
const LONGEST: usize = 1 << 30;

/// The objects of the store by path, and the parts of uploads that are not complete.
#[derive(Default)]
pub struct Store {
    address: Mutex<Option<SocketAddr>>,
    objects: Mutex<HashMap<String, Bytes>>,
    parts: Mutex<HashMap<String, BTreeMap<u32, Bytes>>>,
}

pub fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/api/object-storage/push-access", get(push_access))
}

/// Starts the store on an address of its own.
pub async fn serve(shared: Arc<Shared>) -> JoinHandle<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    *shared.store.address.lock().unwrap() = listener.local_addr().ok();
    let routes = Router::new().fallback(object).with_state(shared);
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() })
}

async fn push_access(State(shared): State<Arc<Shared>>) -> Response {
    let address = shared.store.address.lock().unwrap().unwrap();
    let access = json!({
        "accessKey": ACCESS_KEY, "secret": SECRET, "sessionToken": SESSION_TOKEN,
        "storageUrl": format!("http://{address}"), "organizationId": ORGANISATION, "bucket": BUCKET, "region": REGION,
    });
    Json(access).into_response()
}

impl Store {
    /// The archives of these contexts, which must be there.
    pub fn contexts(&self, hashes: &[&str]) -> Result<Vec<Bytes>, Refusal> {
        let objects = self.objects.lock().unwrap();
        let found = hashes.iter().map(|hash| {
            let path = format!("/{BUCKET}/{ORGANISATION}/{hash}/context.tar");
            let missing = || Refusal(400, format!("Context {hash} was not uploaded"));
            objects.get(&path).cloned().ok_or_else(missing)
        });
        found.collect()
    }

    /// How many objects it holds.
    pub fn len(&self) -> usize {
        self.objects.lock().unwrap().len()
    }
}

async fn object(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let name = format!("{} {}", parts.method, parts.uri.path());
    let body = to_bytes(body, LONGEST).await.unwrap();
    if let Some(fault) = shared.take_fault(&name) {
        // The answer of a store repeats the request, with the credentials in it.
        let status = fault.status().unwrap();
        let (code, canonical) = (
            "InternalError",
            canonical_request(&parts, "host", &Digest::sha256(&body).hex()),
        );
        return failure(status, code, &format!("{ACCESS_KEY} {SESSION_TOKEN} {canonical}"));
    }
    shared.uploads.lock().unwrap().push(name);
    if let Err((code, detail)) = verify(&parts, &body) {
        return failure(403, code, &detail);
    }
    shared.store.answer(&parts, body)
}

fn failure(status: u16, code: &str, detail: &str) -> Response {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>The request failed.</Message>\
         <Detail>{detail}</Detail></Error>"
    );
    (StatusCode::from_u16(status).unwrap(), body).into_response()
}

impl Store {
    fn answer(&self, parts: &Parts, body: Bytes) -> Response {
        let path = parts.uri.path().to_owned();
        let query = query(parts);
        let upload = query.get("uploadId").map(|id| format!("{path}?{id}"));
        let mut objects = self.objects.lock().unwrap();
        let mut pending = self.parts.lock().unwrap();
        match (&parts.method, upload) {
            (&Method::HEAD, _) if !objects.contains_key(&path) => StatusCode::NOT_FOUND.into_response(),
            (&Method::HEAD, _) => {
                let headers = [
                    ("last-modified", "Tue, 17 Nov 2026 11:26:12 GMT"),
                    ("etag", "\"e\""),
                ];
                (headers, objects[&path].clone()).into_response()
            }
            (&Method::PUT, Some(upload)) => {
                let number = query["partNumber"].parse().unwrap();
                pending.entry(upload).or_default().insert(number, body);
                [("etag", "\"e\"")].into_response()
            }
            (&Method::PUT, None) => {
                objects.insert(path, body);
                [("etag", "\"e\"")].into_response()
            }
            (&Method::POST, None) => {
                let id = "<UploadId>1</UploadId>";
                let (name, key) = ("InitiateMultipartUploadResult", "<Bucket>b</Bucket><Key>k</Key>");
                format!("<{name}>{key}{id}</{name}>").into_response()
            }
            (&Method::POST, Some(upload)) => {
                let parts: Vec<Bytes> = pending
                    .remove(&upload)
                    .unwrap_or_default()
                    .into_values()
                    .collect();
                objects.insert(path, parts.concat().into());
                "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>"
                    .into_response()
            }
            _ => failure(405, "MethodNotAllowed", ""),
        }
    }
}

fn query(parts: &Parts) -> HashMap<String, String> {
    let pairs = parts.uri.query().unwrap_or_default().split('&');
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Checks a request as S3 does. The error has S3's code and its detail.
fn verify(parts: &Parts, body: &Bytes) -> Result<(), (&'static str, String)> {
    let header = |name: &str| header(&parts.headers, name);
    let wrong = |code: &'static str, detail: &str| Err((code, detail.to_owned()));
    if header("x-amz-security-token") != SESSION_TOKEN {
        return wrong("InvalidToken", "the session token is wrong");
    }
    let time = header("x-amz-date");
    let Ok(sent) = jiff::Timestamp::strptime("%Y%m%dT%H%M%S%z", time.replace('Z', "+0000")) else {
        return wrong("AccessDenied", "the date cannot be read");
    };
    if (jiff::Timestamp::now().as_second() - sent.as_second()).abs() > SKEW {
        return wrong("RequestTimeTooSkewed", &time);
    }
    let payload = header("x-amz-content-sha256");
    if payload != Digest::sha256(body).hex() {
        return wrong("XAmzContentSHA256Mismatch", &payload);
    }
    let given = header("authorization");
    let field = |name: &str| {
        let rest = given.split_once(&format!("{name}="))?.1;
        rest.split(',').next().map(ToOwned::to_owned)
    };
    let signed = field("SignedHeaders").unwrap_or_default();
    for name in [
        "host",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-security-token",
    ] {
        if !signed.split(';').any(|one| one == name) {
            return wrong("AccessDenied", &format!("{name} is not signed"));
        }
    }
    let scope = format!("{}/{REGION}/s3/aws4_request", &time[..8]);
    if field("Credential") != Some(format!("{ACCESS_KEY}/{scope}")) {
        return wrong("InvalidAccessKeyId", &given);
    }
    let canonical = canonical_request(parts, &signed, &payload);
    let hash = Digest::sha256(canonical.as_bytes()).hex();
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in scope.split('/') {
        key = hmac_of(&key, part);
    }
    let expected = hmac_of(&key, &format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}"));
    let expected = Digest::from_bytes(expected.try_into().unwrap()).hex();
    if field("Signature") != Some(expected) {
        return wrong("SignatureDoesNotMatch", &canonical);
    }
    Ok(())
}

fn canonical_request(parts: &Parts, signed: &str, payload: &str) -> String {
    let mut query: Vec<&str> = parts.uri.query().unwrap_or_default().split('&').collect();
    query.sort_unstable();
    let headers = signed.split(';').map(|name| (name, header(&parts.headers, name)));
    let headers = headers.fold(String::new(), |lines, (name, value)| {
        format!("{lines}{name}:{value}\n")
    });
    let (method, path, query) = (&parts.method, parts.uri.path(), query.join("&"));
    format!("{method}\n{path}\n{query}\n{headers}\n{signed}\n{payload}")
}

fn header(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}

fn hmac_of(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}
