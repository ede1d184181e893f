//! Which host names a sandbox may reach.
//!
//! The gateway asks a [`Policy`] about every name, connection and request. A provider compiles it to what it can enforce.
//! Nothing here opens a socket or reads the environment.
//!
//! ```
//! use ralph::network::{Policy, PolicyRequest, PolicyRule};
//!
//! let policy = Policy::allowlist([PolicyRule::parse("*.example.org")?, PolicyRule::parse("db.example.org:5432")?]);
//! assert!(policy.judge(&PolicyRequest::opaque("www.example.org".parse()?, 443)).is_ok());
//! assert!(policy.judge(&PolicyRequest::opaque("db.example.org".parse()?, 5432)).is_ok());
//! assert!(!policy.judge(&PolicyRequest::opaque("example.org".parse()?, 443)).is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod addition;
mod address;
pub mod firewall;
mod host;
mod packages;
mod pattern;
mod policy;
mod preset;
pub mod probe;
mod request;
mod rule;
mod synthetic;
mod trust_variables;
mod verdict;

pub use addition::{AllowableHosts, host_rule};
pub(crate) use address::behind_nat64;
pub use address::{AddressClass, AddressRange, AddressRangeError};
pub use host::{HostName, HostNameError, RequestHost};
pub use packages::{ConfigDirectory, ConfigTree, PackageClient, PackageConfig};
pub use pattern::{HostPattern, NamePattern};
pub use policy::{Policy, PolicyMode};
pub use preset::Preset;
pub use request::{PolicyRequest, RequestContent};
pub use rule::{PolicyRule, PolicyRuleError};
pub use synthetic::SyntheticAddresses;
pub(crate) use trust_variables::{BUNDLE_VARIABLES, JAVA_VARIABLE, NODE_VARIABLE, is_trust_variable};
pub use verdict::{Denial, PolicyLine, PolicyVerdict};
