//! What makes the programs of a sandbox trust the inspection.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::keystore;
use super::roots::certificates;

/// Variables that name a list of authorities which is taken in place of a program's own.
const REPLACING: [&str; 7] = [
    "SSL_CERT_FILE", // OpenSSL, and with it Python and Ruby; Go; rustls
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "NIX_SSL_CERT_FILE",
];
/// The variable that names authorities which Node trusts besides its own.
const ADDING: &str = "NODE_EXTRA_CA_CERTS";
const JAVA: &str = "JAVA_TOOL_OPTIONS";

/// The files: the authority alone, all that is to be trusted, and the same for Java.
const AUTHORITY: &str = "authority.pem";
const BUNDLE: &str = "bundle.pem";
const STORE: &str = "trust.jks";

/// Files and variables for a sandbox. None of them is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The files: their paths in the sandbox, and what is in them. Everybody there must be able to read them.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The variables that tell programs of them.
    pub env: BTreeMap<String, String>,
    /// All that is to be trusted, as PEM: one of the files. It can also be put in place of the image's own list, for
    /// programs that know no variable.
    pub bundle: Vec<u8>,
}

impl Trust {
    pub(super) fn new(authority: &str, image: &[u8], dir: &Path) -> Self {
        let bundle = joined(image, authority);
        let trusted: Vec<_> = certificates(&bundle).collect();
        let store = keystore::trusting(trusted.iter().map(AsRef::as_ref));
        Self {
            env: Self::variables(dir),
            files: vec![
                (dir.join(AUTHORITY), authority.into()),
                (dir.join(BUNDLE), bundle.clone()),
                (dir.join(STORE), store),
            ],
            bundle,
        }
    }

    /// The variables that tell programs of the files below `dir`, whichever authority they are of.
    #[must_use]
    pub fn variables(dir: &Path) -> BTreeMap<String, String> {
        let [authority, bundle, store] =
            [AUTHORITY, BUNDLE, STORE].map(|name| dir.join(name).display().to_string());
        let java = format!("-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=JKS");
        let replacing = REPLACING.map(|variable| (variable, bundle.clone()));
        let others = [(ADDING, authority), (JAVA, java)];
        let all = replacing.into_iter().chain(others);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The image's list may lack the end of its last line.
fn joined(image: &[u8], authority: &str) -> Vec<u8> {
    let separator: &[u8] = match image.last() {
        None | Some(b'\n') => b"",
        Some(_) => b"\n",
    };
    [image, separator, authority.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_stays_trusted_beside_the_inspection() {
        let [own, authority] = [(); 2].map(|()| {
            let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
            made.cert.pem()
        });
        let trust = Trust::new(&authority, own.trim_end().as_bytes(), Path::new("/trust"));
        assert_eq!(certificates(&trust.bundle).count(), 2);
        let content = |path: &str| {
            let file = trust.files.iter().find(|(own, _)| own == Path::new(path));
            file.unwrap_or_else(|| panic!("{path}")).1.clone()
        };
        assert_eq!(content(&trust.env["SSL_CERT_FILE"]), trust.bundle);
        assert_eq!(content(&trust.env["NODE_EXTRA_CA_CERTS"]), authority.into_bytes());
        assert!(trust.env["JAVA_TOOL_OPTIONS"].contains("/trust/trust.jks"));
        let two_entries = [0, 0, 0, 2];
        assert_eq!(content("/trust/trust.jks")[8..12], two_entries);
    }

    #[test]
    fn an_image_that_trusts_nobody_trusts_the_inspection() {
        let trust = Trust::new("pem\n", b"", Path::new("/trust"));
        assert_eq!(trust.bundle, b"pem\n");
    }
}
