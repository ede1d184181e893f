//! What the configuration allows calls to models besides what agents are known to send.

use reqwest::Url;

use crate::network::{HostName, Policy, PolicyRequest, RequestContent, RequestHost};

/// What a run's calls to models may have besides what agents are known to send.
#[derive(Clone, Debug, Default)]
pub struct CallExceptions {
    /// Paths of fields, such as `messages[].content[].new_field`. Anything may be in them.
    pub fields: Vec<String>,
    /// Names of headers.
    pub headers: Vec<String>,
    /// Decides from which addresses a service may load content for a call; `None` means from none.
    pub policy: Option<Policy>,
}

impl CallExceptions {
    /// Whether a service may load content from this address: whether the sandbox itself could.
    pub(super) fn allows_address(&self, address: &str) -> bool {
        let (Some(policy), Ok(url)) = (&self.policy, Url::parse(address)) else {
            return false;
        };
        let is_web = matches!(url.scheme(), "http" | "https") && url.username().is_empty();
        let Some(Ok(name)) = url.domain().map(HostName::parse) else {
            return false;
        };
        let Some(port) = url.port_or_known_default().filter(|_| is_web) else {
            return false;
        };
        let request = PolicyRequest {
            host: RequestHost::Name(name),
            port,
            content: RequestContent::Opaque,
        };
        policy.judge(&request).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::network::PolicyRule;

    #[rstest]
    #[case("https://images.example/a.png", true)]
    #[case("https://IMAGES.example/a.png", true)]
    #[case("https://images.example:8443/a.png", false)]
    #[case("https://user@images.example/a.png", false)]
    #[case("https://other.example/a.png", false)]
    #[case("https://images.example.other.example/a.png", false)]
    #[case("https://93.184.215.14/a.png", false)]
    #[case("http://[::1]/a.png", false)]
    #[case("file:///etc/passwd", false)]
    #[case("gs://bucket/a.png", false)]
    #[case("s3://images.example/a.png", false)]
    #[case("a.png", false)]
    fn a_service_loads_what_the_sandbox_could(#[case] address: &str, #[case] expected: bool) {
        let rule = PolicyRule::parse("images.example").unwrap();
        let exceptions = CallExceptions {
            policy: Some(Policy::allowlist([rule])),
            ..CallExceptions::default()
        };
        assert_eq!(exceptions.allows_address(address), expected);
        let denied = CallExceptions {
            policy: Some(Policy::deny()),
            ..CallExceptions::default()
        };
        assert!(!denied.allows_address(address) && !CallExceptions::default().allows_address(address));
    }
}
