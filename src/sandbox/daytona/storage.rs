//! The object store from which Daytona takes the files of a build, as its SDK fills it: temporary credentials from the
//! control plane, and one archive for each build context, named by its content.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use reqwest::redirect::Policy as RedirectPolicy;
use reqwest::{Client, Method, Url};

use super::api::DaytonaApi;
use super::client::{CONNECT_TIMEOUT, DaytonaCall};
use super::error::DaytonaError;
use super::signature::{StorageCredentials, UnsignedRequest};
use super::wire::DaytonaStorageAccess;
use crate::engine::{ContentArchive, Digest};

/// How long one request may take. The signature of a request is valid for 15 minutes.
const TIMEOUT: Duration = Duration::from_secs(14 * 60);
/// The largest size of all files of a context. The archive is in memory while it is sent.
const MAX_SIZE: u64 = 256 << 20;
/// How many hexadecimal digits the name of a context has, as many as those of the SDK.
const NAME_DIGITS: usize = 32;

/// The name of a build context at Daytona.
pub(super) fn context_name(files: &ContentArchive) -> String {
    files.digest().hex()[..NAME_DIGITS].to_owned()
}

/// Stores a build context, unless it is there.
pub(super) async fn upload(api: &DaytonaApi, files: &ContentArchive) -> Result<(), DaytonaError> {
    if files.size() > MAX_SIZE {
        let size = files.size() >> 20;
        return Err(DaytonaError::upload(format!(
            "the files that the Dockerfile copies have {size} MiB, and ralph sends at most {} MiB",
            MAX_SIZE >> 20
        )));
    }
    let access: DaytonaStorageAccess = api.client.get("object-storage/push-access").json().await?;
    let store = ObjectStore::new(api, access, &context_name(files))?;
    // Stores differ in how they refuse to show a missing object. If it cannot be stored either, that is the error.
    if store.send(Method::HEAD, Bytes::new()).await.is_ok() {
        return Ok(());
    }
    api.progress
        .report("the files that the Dockerfile copies are sent");
    let (writer, mut archive) = (files.clone(), Vec::new());
    let written = tokio::task::spawn_blocking(move || writer.write_to(&mut archive).map(|()| archive));
    let written = written.await.unwrap_or_else(|error| Err(error.into()));
    let archive = written.map_err(|error| DaytonaError::upload(error.to_string()))?;
    store.send(Method::PUT, archive.into()).await
}

/// One object of a store, for which there are credentials.
struct ObjectStore<'a> {
    api: &'a DaytonaApi,
    http: Client,
    credentials: StorageCredentials,
    url: Url,
}

impl<'a> ObjectStore<'a> {
    fn new(api: &'a DaytonaApi, access: DaytonaStorageAccess, context: &str) -> Result<Self, DaytonaError> {
        let http = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(TIMEOUT)
            .redirect(RedirectPolicy::none())
            .build()
            .map_err(|error| DaytonaError::unreachable("create the HTTP client", error))?;
        let url = object_url(&access, context)
            .ok_or_else(|| DaytonaError::upload("Daytona named an invalid URL of its object store"))?;
        if url.scheme() != "https" && api.client.url.starts_with("https:") {
            let message = "Daytona named an object store without encryption, and ralph sends it nothing";
            return Err(DaytonaError::upload(message));
        }
        let credentials = StorageCredentials {
            access_key: access.access_key,
            secret: access.secret,
            session_token: access.session_token,
            region: access.region,
        };
        Ok(Self {
            api,
            http,
            credentials,
            url,
        })
    }

    async fn send(&self, method: Method, body: Bytes) -> Result<(), DaytonaError> {
        let url = &self.url;
        let host = match (url.host_str().unwrap_or_default(), url.port()) {
            (name, Some(port)) => format!("{name}:{port}"),
            (name, None) => name.to_owned(),
        };
        let unsigned = UnsignedRequest {
            method: method.as_str(),
            host: &host,
            path: url.path(),
            payload: Digest::sha256(&body),
        };
        let headers = sensitive(self.credentials.sign(&unsigned, self.api.clock.now()))?;
        let name = format!("{method} {}://{host}{}", url.scheme(), url.path());
        let request = self.http.request(method, url.clone()).headers(headers);
        let sent = DaytonaCall::new(request.body(body), name)
            .repeatable()
            .done()
            .await;
        sent.map_err(DaytonaError::at_storage)
    }
}

/// Headers whose values are not shown.
fn sensitive(headers: [(&'static str, String); 4]) -> Result<HeaderMap, DaytonaError> {
    let headers = headers.into_iter().map(|(name, value)| {
        let mut value = HeaderValue::try_from(value)?;
        value.set_sensitive(true);
        Ok((HeaderName::from_static(name), value))
    });
    headers.collect::<Result<_, InvalidHeaderValue>>().map_err(|_| {
        DaytonaError::upload("Daytona's credentials of its object store are not valid header values")
    })
}

/// The URL of a context in the bucket, which is a part of the path.
fn object_url(access: &DaytonaStorageAccess, context: &str) -> Option<Url> {
    let store = &access.storage_url;
    let store = if store.contains("://") {
        store.clone()
    } else {
        format!("https://{store}")
    };
    let mut url = Url::parse(&store).ok().filter(Url::has_host)?;
    url.path_segments_mut().ok()?.pop_if_empty().extend([
        &access.bucket,
        &access.organization_id,
        context,
        "context.tar",
    ]);
    Some(url)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::secret::Secret;

    #[test]
    fn the_headers_with_credentials_are_not_shown() {
        let credentials = StorageCredentials {
            access_key: "ACCESS-CANARY".to_owned(),
            secret: Secret::new("SECRET-CANARY"),
            session_token: Secret::new("SESSION-CANARY"),
            region: "us-east-2".to_owned(),
        };
        let unsigned = UnsignedRequest {
            method: "PUT",
            host: "storage.example.com",
            path: "/a",
            payload: Digest::sha256(b""),
        };
        let now = "2026-11-17T11:28:11Z".parse().unwrap();
        let headers = sensitive(credentials.sign(&unsigned, now)).unwrap();
        assert_eq!(headers["x-amz-security-token"], "SESSION-CANARY");
        assert_eq!(headers.len(), 4);
        let shown = format!("{credentials:?} {headers:?}");
        for hidden in ["SECRET-CANARY", "SESSION-CANARY", "Signature="] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }

    #[rstest]
    #[case(
        "https://s3.us-east-2.amazonaws.com",
        "https://s3.us-east-2.amazonaws.com/builds/org/abc/context.tar"
    )]
    #[case(
        "storage.example.com",
        "https://storage.example.com/builds/org/abc/context.tar"
    )]
    #[case(
        "http://127.0.0.1:9000/store/",
        "http://127.0.0.1:9000/store/builds/org/abc/context.tar"
    )]
    fn the_bucket_is_a_part_of_the_path(#[case] storage: &str, #[case] expected: &str) {
        let access = DaytonaStorageAccess {
            access_key: "key".to_owned(),
            secret: Secret::new("secret"),
            session_token: Secret::new("token"),
            storage_url: storage.to_owned(),
            organization_id: "org".to_owned(),
            bucket: "builds".to_owned(),
            region: "us-east-2".to_owned(),
        };
        assert_eq!(object_url(&access, "abc").unwrap().as_str(), expected);
    }
}
