//! What makes the programs of a sandbox trust the inspection of its network: files that it sees and cannot change.
//!
//! Its variables name them for good. Whoever takes the sandbox over has another authority, and puts its certificate there
//! in place of the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::place::Place;
use super::super::{Egress, SandboxSpec};
use super::ground::Ground;
use super::seal::SealError;
use crate::atomic_file::{FileAccess, write_atomically};
use crate::engine::{Digest, EngineError};
use crate::gateway::{Inspection, InspectionTrust};

/// Where the files are inside.
pub(super) const DIRECTORY: &str = "/.ralph/trust";

/// Where images have the list of whom they trust, by what they are made from.
const LISTS: [&str; 4] = [
    "etc/ssl/certs/ca-certificates.crt", // Debian, Arch, Alpine, Nix
    "etc/pki/tls/certs/ca-bundle.crt",   // Fedora
    "etc/ssl/ca-bundle.pem",             // openSUSE
    "etc/ssl/cert.pem",                  // Alpine without its tools
];
/// Variables by which an image says that it is elsewhere.
const ELSEWHERE: [&str; 2] = ["SSL_CERT_FILE", "NIX_SSL_CERT_FILE"];

/// The variables of a container whose network is inspected.
pub(super) fn variables() -> BTreeMap<String, String> {
    InspectionTrust::variables(Path::new(DIRECTORY))
}

impl Ground {
    /// Who opens the TLS of hosts that the policy inspects, with an authority of its own; the sandbox at this place is
    /// made to trust it, beside whom its image trusts. `None` where nothing is inspected.
    pub(super) async fn inspection(
        &self,
        spec: &SandboxSpec,
        image: &Digest,
        place: &Place,
    ) -> Result<Option<Arc<Inspection>>, SealError> {
        if !spec.network.inspects_any() {
            return Ok(None);
        }
        let list = self.list_of(image).await?;
        let (dir, egress) = (place.trust(), spec.egress.clone());
        let made = tokio::task::spawn_blocking(move || make(&list, &dir, &egress)).await;
        let made = made.unwrap_or_else(|error| Err(SealError::Trust(io::Error::other(error))));
        made.map(Arc::new).map(Some)
    }

    /// Whom an image trusts; nobody where it has no list.
    async fn list_of(&self, image: &Digest) -> Result<String, EngineError> {
        let found = self.engine.image(&image.to_string()).await?;
        let env = found.map(|image| image.variables()).unwrap_or_default();
        let elsewhere = ELSEWHERE.iter().filter_map(|name| env.get(*name));
        let elsewhere = elsewhere.map(|path| path.trim_start_matches('/'));
        let places: Vec<&str> = elsewhere.chain(LISTS).collect();
        let paths: BTreeSet<String> = places.iter().copied().map(str::to_owned).collect();
        let mut files = self.engine.image_files(image, &paths, &self.cache).await?;
        Ok(places
            .into_iter()
            .find_map(|path| files.remove(path))
            .unwrap_or_default())
    }
}

fn make(list: &str, dir: &Path, egress: &Egress) -> Result<Inspection, SealError> {
    let inspection = Inspection::new(&egress.roots, Timestamp::now())?;
    let trust = inspection.trust(list.as_bytes(), Path::new(DIRECTORY));
    for (path, bytes) in &trust.files {
        let name = path.file_name().unwrap_or_default();
        write_atomically(&dir.join(name), bytes, FileAccess::Mode(0o644)).map_err(SealError::Trust)?;
    }
    Ok(inspection)
}
