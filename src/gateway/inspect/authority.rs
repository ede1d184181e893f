//! The certificate authority of one run. Its key never leaves the process.

use std::sync::Arc;

use jiff::{Span, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};

use super::InspectionError;
use crate::network::HostName;

/// The only protocol of inspected connections, because its requests can be judged one by one.
pub(super) const PROTOCOL: &[u8] = b"http/1.1";

/// Creates certificates for inspected hosts, all with one key.
pub(super) struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    leaf_key: KeyPair,
    signer: Arc<dyn SigningKey>,
    /// The parameters of all certificates of hosts, without the host.
    leaf: CertificateParams,
    /// The configuration of all connections, without a certificate.
    template: ServerConfig,
}

impl CertificateAuthority {
    pub(super) fn new(now: Timestamp) -> Result<Self, InspectionError> {
        let issuer = CertifiedIssuer::self_signed(authority_params(now), KeyPair::generate()?)?;
        let leaf_key = KeyPair::generate()?;
        let private = PrivateKeyDer::Pkcs8(leaf_key.serialize_der().into());
        let signer = ring::sign::any_supported_type(&private)?;
        let mut template = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        template.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self {
            issuer,
            leaf_key,
            signer,
            leaf: leaf_params(now),
            template,
        })
    }

    /// The certificate that a sandbox must trust.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The TLS configuration for this host, with a new certificate.
    pub(super) fn config_for(&self, name: &HostName) -> Result<Arc<ServerConfig>, InspectionError> {
        let mut params = self.leaf.clone();
        params.subject_alt_names = vec![SanType::DnsName(name.as_str().try_into()?)];
        // The default serial number is derived from the key, which all certificates share.
        params.serial_number = Some(SerialNumber::from(fastrand::u64(1..)));
        let leaf = params.signed_by(&self.leaf_key, &self.issuer)?;
        let certified = CertifiedKey::new(vec![leaf.der().clone()], self.signer.clone());
        let mut config = self.template.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        Ok(Arc::new(config))
    }
}

fn authority_params(now: Timestamp) -> CertificateParams {
    let mut params = params("ralph: inspection of this sandbox", now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Clients compare the alternative names. A common name has a length limit that host names can exceed.
fn leaf_params(now: Timestamp) -> CertificateParams {
    let mut params = params("ralph: an inspected host", now);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params
}

/// Parameters with a validity of a year. Some clients reject more than 398 days.
fn params(common_name: &str, now: Timestamp) -> CertificateParams {
    let date = |days: i64| {
        let at = now.checked_add(Span::new().hours(days * 24)).unwrap_or(now);
        let date = at.to_zoned(TimeZone::UTC).date();
        let part = |number: i8| u8::try_from(number).unwrap_or(1);
        rcgen::date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
    };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = date(-2);
    params.not_after = date(365);
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn every_host_name_can_have_a_certificate() {
        let authority = CertificateAuthority::new(Timestamp::now()).unwrap();
        let long = format!("{}.example", "a.".repeat(122).trim_end_matches('.'));
        for text in ["mirror", "a_b.example", "xn--bcher-kva.example", &long] {
            assert!(authority.config_for(&name(text)).is_ok(), "{text}");
        }
    }

    #[test]
    fn every_run_has_its_own_authority() {
        let [one, other] = [(); 2].map(|()| CertificateAuthority::new(Timestamp::now()).unwrap().pem());
        assert_ne!(one, other);
        assert!(!one.contains("PRIVATE"));
    }
}
