//! The certificate authority of one run. Its key never leaves the process.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{Span, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};

use super::InspectionError;
use crate::network::HostName;

/// The only protocol of inspected connections, because its requests can be judged one by one.
pub(super) const PROTOCOL: &[u8] = b"http/1.1";

/// Creates certificates for inspected hosts, all with one key, and caches the last ones.
pub(super) struct CertificateAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    leaf_key: KeyPair,
    signer: Arc<dyn SigningKey>,
    validity: Validity,
    /// The configuration of all connections, without a certificate.
    template: ServerConfig,
    cache: Mutex<LeafCache>,
}

impl CertificateAuthority {
    pub(super) fn new(now: Timestamp) -> Result<Self, InspectionError> {
        let validity = Validity::around(now);
        let issuer = CertifiedIssuer::self_signed(authority_params(&validity), KeyPair::generate()?)?;
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
            validity,
            template,
            cache: Mutex::default(),
        })
    }

    /// The certificate that a sandbox must trust.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The TLS configuration for this host.
    pub(super) fn config_for(&self, name: &HostName) -> Result<Arc<ServerConfig>, InspectionError> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = cache.by_name.get(name) {
            return Ok(config.clone());
        }
        cache.created += 1;
        let params = leaf_params(name, cache.created, &self.validity)?;
        let leaf = params.signed_by(&self.leaf_key, &self.issuer)?;
        let certified = CertifiedKey::new(vec![leaf.der().clone()], self.signer.clone());
        let mut config = self.template.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        let config = Arc::new(config);
        cache.insert(name.clone(), config.clone());
        Ok(config)
    }
}

/// The last certificates by name.
#[derive(Default)]
struct LeafCache {
    by_name: HashMap<HostName, Arc<ServerConfig>>,
    oldest_first: VecDeque<HostName>,
    created: u64,
}

impl LeafCache {
    /// The limit protects the memory: a sandbox can request any name below a wildcard.
    const MAX: usize = 256;

    fn insert(&mut self, name: HostName, config: Arc<ServerConfig>) {
        if self.by_name.len() >= Self::MAX
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.by_name.remove(&oldest);
        }
        self.oldest_first.push_back(name.clone());
        self.by_name.insert(name, config);
    }
}

/// The validity of certificates. Some clients reject more than 398 days.
struct Validity {
    from: Timestamp,
    to: Timestamp,
}

impl Validity {
    fn around(now: Timestamp) -> Self {
        let day = |days: i64| now.checked_add(Span::new().hours(days * 24)).unwrap_or(now);
        Self {
            from: day(-2),
            to: day(365),
        }
    }

    fn apply(&self, params: &mut CertificateParams) {
        let date = |at: Timestamp| {
            let date = at.to_zoned(TimeZone::UTC).date();
            let part = |number: i8| u8::try_from(number).unwrap_or(1);
            rcgen::date_time_ymd(i32::from(date.year()), part(date.month()), part(date.day()))
        };
        params.not_before = date(self.from);
        params.not_after = date(self.to);
    }
}

fn authority_params(validity: &Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("ralph: inspection of this sandbox");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity.apply(&mut params);
    params
}

fn leaf_params(name: &HostName, number: u64, validity: &Validity) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([name.to_string()])?;
    // Clients compare the alternative names. A common name has a length limit that host names can exceed.
    params.distinguished_name = common_name("ralph: an inspected host");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    // The default serial number is derived from the key, which all certificates share.
    params.serial_number = Some(SerialNumber::from(number));
    validity.apply(&mut params);
    Ok(params)
}

fn common_name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn certificates_are_cached_up_to_a_limit() {
        let authority = CertificateAuthority::new(Timestamp::UNIX_EPOCH).unwrap();
        let first = authority.config_for(&name("a.example")).unwrap();
        let again = authority.config_for(&name("a.example")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        for number in 0..LeafCache::MAX {
            authority
                .config_for(&name(&format!("n{number}.example")))
                .unwrap();
        }
        let cache = authority.cache.lock().unwrap();
        assert_eq!(cache.by_name.len(), LeafCache::MAX);
        assert_eq!(cache.oldest_first.len(), LeafCache::MAX);
        assert!(!cache.by_name.contains_key(&name("a.example")));
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
