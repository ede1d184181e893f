//! Which names a sandbox may reach, as plain values: what is allowed, what is not, and by which line.
//!
//! A [`Policy`] is one value. The gateway asks it about every name, connection and request; each provider compiles it to
//! what it can enforce. Nothing here opens a socket or reads the environment.
//!
//! ```
//! use ralph::network::{Policy, Request, Rule};
//!
//! let policy = Policy::allowlist([Rule::parse("*.example.org")?, Rule::parse("db.example.org:5432")?]);
//! assert!(policy.judge(&Request::opaque("www.example.org".parse()?, 443)).is_allowed());
//! assert!(policy.judge(&Request::opaque("db.example.org".parse()?, 5432)).is_allowed());
//! assert!(!policy.judge(&Request::opaque("example.org".parse()?, 443)).is_allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
pub mod firewall;
mod host;
pub mod packages;
mod pattern;
mod policy;
mod preset;
pub mod probe;
mod request;
mod rule;
mod synthetic;
mod verdict;

pub(crate) use address::behind_nat64;
pub use address::{AddressClass, AddressRange, AddressRangeError};
pub use host::{Host, HostName, HostNameError};
pub use packages::{Clients, Directory, NoFiles, Tree};
pub use pattern::{HostPattern, Names};
pub use policy::{Mode, Policy};
pub use preset::{Preset, UnknownPreset};
pub use request::{Request, Seen};
pub use rule::{PathPattern, Rule, RuleError};
pub use synthetic::SyntheticAddresses;
pub use verdict::{Denial, Line, Verdict};
