//! Signatures of requests to an object store: AWS Signature Version 4, with temporary credentials.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::hmac;

use crate::engine::Digest;
use crate::secret::Secret;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The credentials and the region of an object store.
#[derive(Clone, Debug)]
pub(super) struct StorageCredentials {
    pub(super) access_key: String,
    pub(super) secret: Secret,
    pub(super) session_token: Secret,
    pub(super) region: String,
}

/// A request without a query. The path is percent-encoded.
pub(super) struct UnsignedRequest<'a> {
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    /// The digest of the body.
    pub(super) payload: Digest,
}

impl StorageCredentials {
    /// The headers that sign a request. The store accepts them for 15 minutes.
    pub(super) fn sign(&self, request: &UnsignedRequest, now: Timestamp) -> [(&'static str, String); 4] {
        let time = now.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string();
        let payload = request.payload.hex();
        let signed = [
            ("host", request.host),
            ("x-amz-content-sha256", &payload),
            ("x-amz-date", &time),
            ("x-amz-security-token", self.session_token.expose()),
        ];
        let authorization = self.authorization(request, &signed, &time);
        [
            ("authorization", authorization),
            ("x-amz-content-sha256", payload.clone()),
            ("x-amz-date", time.clone()),
            ("x-amz-security-token", self.session_token.expose().to_owned()),
        ]
    }

    /// The header `Authorization`. The headers to sign have lower-case names, in order.
    fn authorization(&self, request: &UnsignedRequest, headers: &[(&str, &str)], time: &str) -> String {
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let lines = headers
            .iter()
            .flat_map(|(name, value)| [*name, ":", *value, "\n"]);
        let lines: String = lines.collect();
        let (method, path, payload) = (request.method, request.path, request.payload.hex());
        let canonical = format!("{method}\n{path}\n\n{lines}\n{names}\n{payload}");
        let (day, region) = (time.split('T').next().unwrap_or_default(), &self.region);
        let scope = format!("{day}/{region}/s3/aws4_request");
        let hash = Digest::sha256(canonical.as_bytes()).hex();
        let signature = hmac_sha256(
            &self.signing_key(day),
            &format!("{ALGORITHM}\n{time}\n{scope}\n{hash}"),
        );
        let signature = Digest::from_bytes(signature).hex();
        let key = &self.access_key;
        format!("{ALGORITHM} Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}")
    }

    /// The key of one day.
    fn signing_key(&self, day: &str) -> [u8; 32] {
        let first = format!("AWS4{}", self.secret.expose());
        let of_day = hmac_sha256(first.as_bytes(), day);
        let of_region = hmac_sha256(&of_day, &self.region);
        let of_service = hmac_sha256(&of_region, "s3");
        hmac_sha256(&of_service, "aws4_request")
    }
}

fn hmac_sha256(key: &[u8], text: &str) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(tag.as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of Amazon's documentation, "Signature Calculations for the Authorization Header".
    fn published() -> StorageCredentials {
        StorageCredentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session_token: Secret::new(""),
            region: "us-east-1".to_owned(),
        }
    }

    #[test]
    fn the_published_get_has_its_signature() {
        let payload = Digest::sha256(b"");
        let request = UnsignedRequest {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            payload,
        };
        let headers = [
            ("host", request.host),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", &payload.hex()),
            ("x-amz-date", "20130524T000000Z"),
        ];
        assert_eq!(
            published().authorization(&request, &headers, "20130524T000000Z"),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, \
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
    }

    #[test]
    fn the_published_put_has_its_signature() {
        let payload = Digest::sha256(b"Welcome to Amazon S3.");
        let request = UnsignedRequest {
            method: "PUT",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test%24file.text",
            payload,
        };
        let headers = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            ("host", request.host),
            ("x-amz-content-sha256", &payload.hex()),
            ("x-amz-date", "20130524T000000Z"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let authorization = published().authorization(&request, &headers, "20130524T000000Z");
        assert!(
            authorization
                .ends_with("Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
            "{authorization}"
        );
    }

    /// What `ObjectStorage.upload` of Daytona's Python SDK 0.226.1 (obstore 0.11.1) sent to a server on loopback, recorded
    /// with these made-up credentials: its `HEAD` of a file that is not there.
    #[test]
    fn the_headers_are_those_of_daytonas_sdk() {
        let credentials = StorageCredentials {
            access_key: "ASIAEXAMPLEKEY".to_owned(),
            secret: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: Secret::new("FwoGZXIvYXdzEXAMPLE+session/token=="),
            region: "us-east-2".to_owned(),
        };
        let request = UnsignedRequest {
            method: "HEAD",
            host: "127.0.0.1:36081",
            path: "/daytona-volume-builds/00000000-0000-0000-0000-000000000001/9e8cca0e36068e358aa1351085f2f281/context.tar",
            payload: Digest::sha256(b""),
        };
        let signed = credentials.sign(&request, "2026-11-17T11:28:11Z".parse().unwrap());
        let recorded = [
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=ASIAEXAMPLEKEY/20261117/us-east-2/s3/aws4_request, \
                 SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, \
                 Signature=b3ebda9cfcc0f0a43743295527c3bb5b24046558234ca11ab6fa14cf47cd6f37",
            ),
            (
                "x-amz-content-sha256",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            ("x-amz-date", "20261117T112811Z"),
            ("x-amz-security-token", "FwoGZXIvYXdzEXAMPLE+session/token=="),
        ];
        assert_eq!(
            signed.each_ref().map(|(name, value)| (*name, value.as_str())),
            recorded
        );
    }
}
