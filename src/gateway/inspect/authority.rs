//! The certificate authority of one run. Its key is made with it and never leaves this process.

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

/// The one protocol that is spoken inside: requests in it can be judged one by one.
pub(super) const PROTOCOL: &[u8] = b"http/1.1";

/// Makes certificates for the hosts that are inspected, all of one key, and keeps the last ones.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    leaf_key: KeyPair,
    signer: Arc<dyn SigningKey>,
    validity: Validity,
    /// What all connections have in common; only the certificate differs.
    template: ServerConfig,
    leaves: Mutex<Leaves>,
}

impl Authority {
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
            leaves: Mutex::default(),
        })
    }

    /// The certificate that a sandbox has to trust.
    pub(super) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// How to answer as this host.
    pub(super) fn config_for(&self, name: &HostName) -> Result<Arc<ServerConfig>, InspectionError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = leaves.by_name.get(name) {
            return Ok(config.clone());
        }
        leaves.made += 1;
        let params = leaf_params(name, leaves.made, &self.validity)?;
        let leaf = params.signed_by(&self.leaf_key, &self.issuer)?;
        let certified = CertifiedKey::new(vec![leaf.der().clone()], self.signer.clone());
        let mut config = self.template.clone();
        config.cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        let config = Arc::new(config);
        leaves.keep(name.clone(), config.clone());
        Ok(config)
    }
}

/// Those made last, by name.
#[derive(Default)]
struct Leaves {
    by_name: HashMap<HostName, Arc<ServerConfig>>,
    oldest_first: VecDeque<HostName>,
    made: u64,
}

impl Leaves {
    /// A sandbox can ask for any name below a wildcard; it must not fill the memory with them.
    const MOST: usize = 256;

    fn keep(&mut self, name: HostName, config: Arc<ServerConfig>) {
        if self.by_name.len() >= Self::MOST
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.by_name.remove(&oldest);
        }
        self.oldest_first.push_back(name.clone());
        self.by_name.insert(name, config);
    }
}

/// From when to when certificates are good. Some clients take none that is good for longer than 398 days.
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
    params.distinguished_name = named("ralph: inspection of this sandbox");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    validity.apply(&mut params);
    params
}

fn leaf_params(name: &HostName, number: u64, validity: &Validity) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([name.to_string()])?;
    // Names are compared with the alternative ones; this one has a length that long host names exceed.
    params.distinguished_name = named("ralph: an inspected host");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    // All are of one key, of which the number would be made by itself.
    params.serial_number = Some(SerialNumber::from(number));
    validity.apply(&mut params);
    Ok(params)
}

fn named(text: &str) -> DistinguishedName {
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
    fn a_certificate_is_made_once_and_only_so_many_are_kept() {
        let authority = Authority::new(Timestamp::UNIX_EPOCH).unwrap();
        let first = authority.config_for(&name("a.example")).unwrap();
        let again = authority.config_for(&name("a.example")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        for number in 0..Leaves::MOST {
            authority
                .config_for(&name(&format!("n{number}.example")))
                .unwrap();
        }
        let leaves = authority.leaves.lock().unwrap();
        assert_eq!(leaves.by_name.len(), Leaves::MOST);
        assert_eq!(leaves.oldest_first.len(), Leaves::MOST);
        assert!(!leaves.by_name.contains_key(&name("a.example")));
    }

    #[test]
    fn every_name_of_a_host_can_have_a_certificate() {
        let authority = Authority::new(Timestamp::now()).unwrap();
        let long = format!("{}.example", "a.".repeat(122).trim_end_matches('.'));
        for text in ["mirror", "a_b.example", "xn--bcher-kva.example", &long] {
            assert!(authority.config_for(&name(text)).is_ok(), "{text}");
        }
    }

    #[test]
    fn every_run_has_an_authority_of_its_own() {
        let [one, other] = [(); 2].map(|()| Authority::new(Timestamp::now()).unwrap().pem());
        assert_ne!(one, other);
        assert!(!one.contains("PRIVATE"));
    }
}
