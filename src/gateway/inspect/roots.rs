//! The trusted certificates that verify hosts.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::InspectionError;

/// The certificate authorities that verify hosts.
#[derive(Clone, Debug)]
pub enum TrustedRoots {
    /// Those that the host trusts.
    System,
    /// Those in this PEM text.
    Pem(Vec<u8>),
}

impl TrustedRoots {
    /// Loads the certificates. Invalid ones are skipped, as other programs do. An empty list is an error.
    pub(super) fn load(&self) -> Result<RootCertStore, InspectionError> {
        let found = match self {
            Self::System => rustls_native_certs::load_native_certs().certs,
            Self::Pem(text) => certificates(text).collect(),
        };
        let mut store = RootCertStore::empty();
        let (added, _) = store.add_parsable_certificates(found);
        if added == 0 {
            return Err(InspectionError::NoRoots);
        }
        Ok(store)
    }
}

/// The certificates in a PEM text. Everything else is skipped.
pub(super) fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_is_an_error() {
        for text in [
            "",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let loaded = TrustedRoots::Pem(text.into()).load();
            assert!(matches!(loaded, Err(InspectionError::NoRoots)), "{text}");
        }
    }
}
