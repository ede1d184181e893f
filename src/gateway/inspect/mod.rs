//! Decrypts TLS connections to inspected hosts, so that the method, path and host of each request are judged. The connection
//! to the host uses TLS again, and its certificate is verified.

mod authority;
mod keystore;
mod roots;
mod trust;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

use super::audit::AuditProtocol;
use super::http::{self, RequestScope};
use super::shared::ServedConnection;
use super::stream::Buffered;
use crate::network::{Denial, HostName, RequestHost};
use authority::{CertificateAuthority, PROTOCOL};

pub use roots::TrustedRoots;
pub use trust::InspectionTrust;

/// Decrypts the TLS connections of one run, with a certificate authority that exists in memory only.
///
/// ```no_run
/// use std::{path::Path, sync::Arc};
///
/// use ralph::gateway::{Inspection, TrustedRoots};
///
/// let inspection = Arc::new(Inspection::new(&TrustedRoots::System, jiff::Timestamp::now())?);
/// let image_bundle = b"-----BEGIN CERTIFICATE-----...";
/// let trust = inspection.trust(image_bundle, Path::new("/etc/ralph"));
/// // `trust.files` and `trust.env` go into the sandbox, and `inspection` into the `GatewaySetup`.
/// # Ok::<(), ralph::gateway::InspectionError>(())
/// ```
pub struct Inspection {
    authority: CertificateAuthority,
    client_config: Arc<ClientConfig>,
}

impl Inspection {
    /// An inspection with a new authority. `roots` verify the certificates of hosts.
    pub fn new(roots: &TrustedRoots, now: Timestamp) -> Result<Self, InspectionError> {
        let mut client_config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots.load()?)
            .with_no_client_auth();
        client_config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            authority: CertificateAuthority::new(now)?,
            client_config: Arc::new(client_config),
        })
    }

    /// The files below `dir` and the variables that make the programs of a sandbox trust the inspection.
    ///
    /// `bundle` are the trusted certificates of the image as PEM. Most programs replace their list by the new one, so it is
    /// included.
    #[must_use]
    pub fn trust(&self, bundle: &[u8], dir: &Path) -> InspectionTrust {
        InspectionTrust::new(&self.authority.pem(), bundle, dir)
    }

    /// Opens TLS over a connection to a host and verifies its certificate.
    pub(super) async fn connect(
        &self,
        host: &RequestHost,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let server = ServerName::try_from(host.to_string()).map_err(invalid)?;
        TlsConnector::from(self.client_config.clone())
            .connect(server, stream)
            .await
    }
}

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspection").finish_non_exhaustive()
    }
}

/// Serves a connection whose client hello has this server name.
pub(super) async fn serve(
    connection: ServedConnection<'_>,
    inspection: Arc<Inspection>,
    name: HostName,
    port: u16,
) -> io::Result<()> {
    let ServedConnection { core, slot, client } = connection;
    let accepting = async {
        let config = inspection.authority.config_for(&name);
        let acceptor = TlsAcceptor::from(config.map_err(io::Error::other)?);
        acceptor.accept(client.into_stream()).await
    };
    let Ok(Ok(client)) = timeout(core.setup.limits.receive_timeout, accepting).await else {
        // The client already got a TLS alert.
        let denial = Denial::Invalid(HANDSHAKE_FAILED);
        core.record_denial(AuditProtocol::Tls, Some(&name.into()), Some(port), &denial);
        return Ok(());
    };
    let client = Buffered::new(client);
    let connection = ServedConnection { core, slot, client };
    let scope = RequestScope::Inspected {
        host: name.into(),
        port,
        inspection,
    };
    http::serve(connection, scope).await
}

const HANDSHAKE_FAILED: &str = "the TLS handshake of an inspected connection failed; the client may not trust the certificate of the inspection, or not support HTTP/1.1";

/// An inspection cannot be created.
#[derive(Debug, Error)]
pub enum InspectionError {
    /// The certificate authority cannot be created.
    #[error("cannot create the certificate authority of the inspection")]
    Authority(#[from] rcgen::Error),
    /// TLS cannot be configured.
    #[error("cannot configure TLS for the inspection")]
    Tls(#[from] rustls::Error),
    /// There are no trusted certificates to verify hosts with.
    #[error("the host has no trusted CA certificates")]
    NoRoots,
}

impl InspectionError {
    /// What the user can do next. Rendered as `hint:` by the CLI only.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoRoots => {
                Some("install the CA certificates of the host (on Debian the package `ca-certificates`)")
            }
            Self::Authority(_) | Self::Tls(_) => None,
        }
    }
}
