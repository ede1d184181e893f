//! TLS that is opened, for hosts whose requests are to be seen: their method and path are judged, and that they are for the
//! host that the connection is for. Towards the host it is TLS again, and its certificate is verified.

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
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::audit::Protocol;
use super::core::Session;
use super::http::{self, Scope};
use super::permit::Subject;
use super::stream::{Buffered, Client};
use crate::network::{Denial, HostName};
use authority::{Authority, PROTOCOL};

pub use roots::Roots;
pub use trust::Trust;

/// Opens the TLS of one run: with an authority of its own, which exists in memory alone.
///
/// ```no_run
/// use std::{path::Path, sync::Arc};
///
/// use ralph::gateway::{Inspection, Roots};
///
/// let inspection = Arc::new(Inspection::new(&Roots::System, jiff::Timestamp::now())?);
/// let image_bundle = b"-----BEGIN CERTIFICATE-----...";
/// let trust = inspection.trust(image_bundle, Path::new("/etc/ralph"));
/// // `trust.files` and `trust.env` go into the sandbox, and `inspection` into the gateway's `Setup`.
/// # Ok::<(), ralph::gateway::InspectionError>(())
/// ```
pub struct Inspection {
    authority: Authority,
    onward: Arc<ClientConfig>,
}

impl Inspection {
    /// An inspection with a new authority. Hosts are verified against `roots`.
    pub fn new(roots: &Roots, now: Timestamp) -> Result<Self, InspectionError> {
        let mut onward = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots.load()?)
            .with_no_client_auth();
        onward.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            authority: Authority::new(now)?,
            onward: Arc::new(onward),
        })
    }

    /// What has to be in a sandbox so that its programs trust the inspection: files below `dir`, and variables.
    ///
    /// `bundle` is what the image itself trusts, as PEM: most programs take a list in its place, so it is part of that.
    #[must_use]
    pub fn trust(&self, bundle: &[u8], dir: &Path) -> Trust {
        Trust::new(&self.authority.pem(), bundle, dir)
    }

    /// Encrypts a connection to a host, which must prove that it is that host.
    pub(super) async fn encrypt(
        &self,
        name: &HostName,
        stream: TcpStream,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let server = ServerName::try_from(name.to_string()).map_err(invalid)?;
        TlsConnector::from(self.onward.clone())
            .connect(server, stream)
            .await
    }

    /// Answers a client as the host.
    async fn accept<C: Client>(
        &self,
        name: &HostName,
        client: Buffered<C>,
    ) -> io::Result<server::TlsStream<Buffered<C>>> {
        let config = self.authority.config_for(name).map_err(io::Error::other)?;
        TlsAcceptor::from(config).accept(client).await
    }
}

impl fmt::Debug for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspection").finish_non_exhaustive()
    }
}

/// Serves one connection whose hello was read and is for this host.
pub(super) async fn serve<C: Client>(
    session: Session<'_, C>,
    inspection: Arc<Inspection>,
    (name, port): (HostName, u16),
) -> io::Result<()> {
    let Session { core, seat, client } = session;
    let accepting = inspection.accept(&name, client);
    let Ok(Ok(client)) = timeout(core.limits.hello, accepting).await else {
        // What TLS has to say to the client was said.
        let subject = Subject {
            protocol: Protocol::Tls,
            host: Some(name.to_string()),
            port: Some(port),
        };
        core.notary.denied(subject, &Denial::Invalid(NO_HANDSHAKE));
        return Ok(());
    };
    let client = Buffered::new(client);
    let session = Session { core, seat, client };
    http::serve(session, Scope::Inspected(inspection, name, port)).await
}

const NO_HANDSHAKE: &str = "an inspected connection that was not agreed on; the client may not trust the inspection, or speak no HTTP/1.1";

impl<C: Client> Client for server::TlsStream<Buffered<C>> {
    fn reset_on_close(&self) {
        self.get_ref().0.stream.reset_on_close();
    }
}

/// Why TLS cannot be inspected.
#[derive(Debug, Error)]
pub enum InspectionError {
    /// No certificate can be made.
    #[error("the authority of the inspection cannot be made")]
    Authority(#[from] rcgen::Error),
    /// TLS cannot be set up.
    #[error("the inspection cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// Nobody is trusted, so that no host could be verified.
    #[error("there is no authority to verify hosts against")]
    NoRoots,
}

impl InspectionError {
    /// What the user can do next.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoRoots => Some("install this machine's list of authorities (on Debian `ca-certificates`)"),
            Self::Authority(_) | Self::Tls(_) => None,
        }
    }
}
