//! Who is trusted to say which host is which.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::InspectionError;

/// The authorities that the certificates of hosts are verified against.
#[derive(Clone, Debug)]
pub enum Roots {
    /// Those this machine trusts.
    System,
    /// Those in this text, as PEM.
    Pem(Vec<u8>),
}

impl Roots {
    /// What cannot be read is passed over, as every program does with the list of its system; an empty list is refused.
    pub(super) fn load(&self) -> Result<RootCertStore, InspectionError> {
        let found = match self {
            Self::System => rustls_native_certs::load_native_certs().certs,
            Self::Pem(text) => certificates(text).collect(),
        };
        let mut store = RootCertStore::empty();
        let (taken, _) = store.add_parsable_certificates(found);
        if taken == 0 {
            return Err(InspectionError::NoRoots);
        }
        Ok(store)
    }
}

/// The certificates in a text, whatever else stands there.
pub(super) fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_an_authority_is_refused() {
        for text in [
            "",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            let loaded = Roots::Pem(text.into()).load();
            assert!(matches!(loaded, Err(InspectionError::NoRoots)), "{text}");
        }
    }
}
