//! The files and variables that make the programs of a sandbox trust the inspection.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::keystore;
use super::roots::certificates;
use crate::network::{BUNDLE_VARIABLES, JAVA_VARIABLE, NODE_VARIABLE};

/// The files: the authority, all trusted certificates, and the same for Java.
const AUTHORITY_FILE: &str = "authority.pem";
const BUNDLE_FILE: &str = "bundle.pem";
const STORE_FILE: &str = "trust.jks";

/// Files and variables for a sandbox. They are not secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectionTrust {
    /// The paths and contents of the files. All users of the sandbox must be able to read them.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The variables that point programs to the files.
    pub env: BTreeMap<String, String>,
    /// All trusted certificates as PEM, which is one of the files. It can also replace the list of the image, for programs
    /// that support no variable.
    pub bundle: Vec<u8>,
}

impl InspectionTrust {
    pub(super) fn new(authority: &str, image: &[u8], dir: &Path) -> Self {
        let bundle = join(image, authority);
        let trusted: Vec<_> = certificates(&bundle).collect();
        let store = keystore::trust_store(trusted.iter().map(AsRef::as_ref));
        Self {
            env: Self::variables(dir),
            files: vec![
                (dir.join(AUTHORITY_FILE), authority.into()),
                (dir.join(BUNDLE_FILE), bundle.clone()),
                (dir.join(STORE_FILE), store),
            ],
            bundle,
        }
    }

    /// The variables that point programs to the files below `dir`.
    #[must_use]
    pub fn variables(dir: &Path) -> BTreeMap<String, String> {
        let [authority, bundle, store] =
            [AUTHORITY_FILE, BUNDLE_FILE, STORE_FILE].map(|name| dir.join(name).display().to_string());
        let java = format!("-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=JKS");
        let bundles = BUNDLE_VARIABLES.map(|variable| (variable, bundle.clone()));
        let others = [(NODE_VARIABLE, authority), (JAVA_VARIABLE, java)];
        let all = bundles.into_iter().chain(others);
        all.map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Joins the lists. That of the image may lack a line break at its end.
fn join(image: &[u8], authority: &str) -> Vec<u8> {
    let separator: &[u8] = match image.last() {
        None | Some(b'\n') => b"",
        Some(_) => b"\n",
    };
    [image, separator, authority.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::is_trust_variable;

    #[test]
    fn the_certificates_of_the_image_stay_trusted() {
        let [own, authority] = [(); 2].map(|()| {
            let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
            made.cert.pem()
        });
        let trust = InspectionTrust::new(&authority, own.trim_end().as_bytes(), Path::new("/trust"));
        assert_eq!(certificates(&trust.bundle).count(), 2);
        let content = |path: &str| {
            let file = trust.files.iter().find(|(own, _)| own == Path::new(path));
            file.unwrap_or_else(|| panic!("{path}")).1.clone()
        };
        assert_eq!(content(&trust.env["SSL_CERT_FILE"]), trust.bundle);
        assert_eq!(content(&trust.env["NODE_EXTRA_CA_CERTS"]), authority.into_bytes());
        assert!(trust.env["JAVA_TOOL_OPTIONS"].contains("/trust/trust.jks"));
        // `sandbox.env` refuses exactly these.
        assert!(
            trust.env.keys().all(|name| is_trust_variable(name)),
            "{:?}",
            trust.env
        );
        let two_entries = [0, 0, 0, 2];
        assert_eq!(content("/trust/trust.jks")[8..12], two_entries);
    }

    #[test]
    fn an_image_without_certificates_trusts_the_inspection() {
        let trust = InspectionTrust::new("pem\n", b"", Path::new("/trust"));
        assert_eq!(trust.bundle, b"pem\n");
    }
}
