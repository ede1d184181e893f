//! Lets the programs of a sandbox trust the TLS inspection of its network: certificate files that it sees read-only.
//!
//! The variables of a container name these files once and for all. A process that takes the sandbox over has a
//! certificate authority of its own and replaces the files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::sandbox_dir::SandboxDir;
use super::super::{Egress, SandboxSpec};
use super::backend::EngineHost;
use super::seal::SealError;
use crate::atomic_file::{FileAccess, write_atomically};
use crate::engine::{Digest, EngineError, TarStream};
use crate::gateway::{Inspection, InspectionTrust};

/// The directory of the files inside.
pub(super) const DIRECTORY: &str = "/.ralph/trust";

/// The files with trusted certificates in images, by distribution.
const BUNDLES: [&str; 4] = [
    "etc/ssl/certs/ca-certificates.crt", // Debian, Arch, Alpine, Nix
    "etc/pki/tls/certs/ca-bundle.crt",   // Fedora
    "etc/ssl/ca-bundle.pem",             // openSUSE
    "etc/ssl/cert.pem",                  // Alpine without its tools
];
/// Variables by which an image names another file.
const BUNDLE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "NIX_SSL_CERT_FILE"];

/// The variables of a container whose network is inspected.
pub(super) fn variables() -> BTreeMap<String, String> {
    InspectionTrust::variables(Path::new(DIRECTORY))
}

impl EngineHost {
    /// The TLS inspection of a sandbox, with a certificate authority of its own. The sandbox trusts it in addition to
    /// what its image trusts. `None` if the policy inspects nothing.
    pub(super) async fn inspection(
        &self,
        spec: &SandboxSpec,
        image: &Digest,
        dir: &SandboxDir,
        holder: &str,
    ) -> Result<Option<Arc<Inspection>>, SealError> {
        if !spec.network.inspects_any() {
            return Ok(None);
        }
        let bundle = self.certificates(image).await?;
        let (trust, egress, now) = (dir.trust(), spec.egress.clone(), self.clock.now());
        let created = tokio::task::spawn_blocking(move || create(&bundle, &trust, &egress, now)).await;
        let created = created.unwrap_or_else(|error| Err(SealError::Trust(io::Error::other(error))))?;
        if self.is_remote {
            let trust = dir.trust();
            let archive = TarStream::written_by(move |out| write_files(out, &trust));
            self.engine.put_archive(holder, DIRECTORY, archive).await?;
        }
        Ok(Some(Arc::new(created)))
    }

    /// The certificates that an image trusts; empty if it has none.
    async fn certificates(&self, image: &Digest) -> Result<String, EngineError> {
        let found = self.engine.image(&image.to_string()).await?;
        let env = found.map(|image| image.variables()).unwrap_or_default();
        let named = BUNDLE_VARIABLES.iter().filter_map(|name| env.get(*name));
        let named = named.map(|path| path.trim_start_matches('/'));
        let candidates: Vec<&str> = named.chain(BUNDLES).collect();
        let paths: BTreeSet<String> = candidates.iter().copied().map(str::to_owned).collect();
        let mut files = self
            .engine
            .image_files(image, &paths, &self.cache, self.clock.now())
            .await?;
        Ok(candidates
            .into_iter()
            .find_map(|path| files.remove(path))
            .unwrap_or_default())
    }
}

/// Writes an archive of the files of a directory, which belong to root in it.
fn write_files(out: &mut dyn Write, dir: &Path) -> io::Result<()> {
    let mut tar = tar::Builder::new(out);
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let bytes = std::fs::read(entry.path())?;
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, entry.file_name(), bytes.as_slice())?;
    }
    tar.finish()
}

fn create(bundle: &str, dir: &Path, egress: &Egress, now: Timestamp) -> Result<Inspection, SealError> {
    let inspection = Inspection::new(&egress.roots, now)?;
    let trust = inspection.trust(bundle.as_bytes(), Path::new(DIRECTORY));
    for (path, bytes) in &trust.files {
        let name = path.file_name().unwrap_or_default();
        write_atomically(&dir.join(name), bytes, FileAccess::Mode(0o644)).map_err(SealError::Trust)?;
    }
    Ok(inspection)
}
