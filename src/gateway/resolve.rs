//! Resolves names on the host.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;

use crate::network::HostName;

/// Resolves the names of allowed connections. A sandbox never sees the addresses.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a name; empty when it has none. The resolver of the host returns an error then.
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the host: its hosts file, then its name servers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

const HOSTS: &str = "/etc/hosts";

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &HostName) -> io::Result<Vec<IpAddr>> {
        if let Ok(hosts) = tokio::fs::read(HOSTS).await {
            let found = listed_addresses(&String::from_utf8_lossy(&hosts), name);
            if !found.is_empty() {
                return Ok(found);
            }
        }
        // The function requires a port, which does not matter.
        let found = tokio::net::lookup_host((absolute(name), 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// The name with a dot at its end. Without it the resolver would append the search suffixes of the host, and a name that
/// does not exist could lead to another host in the network of this one. A name with the dot is not found in the hosts file.
fn absolute(name: &HostName) -> String {
    format!("{name}.")
}

/// The addresses of a name in a hosts file.
fn listed_addresses(hosts: &str, name: &HostName) -> Vec<IpAddr> {
    let lines = hosts.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words
            .any(|word| word.eq_ignore_ascii_case(name.as_str()))
            .then_some(address)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_suffix_is_appended_to_a_name() {
        for name in ["intranet", "a.example"] {
            assert_eq!(absolute(&HostName::parse(name).unwrap()), format!("{name}."));
        }
    }

    #[test]
    fn names_of_the_hosts_file_are_found() {
        let hosts = "127.0.0.1 localhost # a.example\n::1\tlocalhost ip6-localhost\n10.0.0.9 db DB.example\nnonsense x\n";
        let found = |name: &str| {
            let found = listed_addresses(hosts, &HostName::parse(name).unwrap());
            found.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(found("db.example"), ["10.0.0.9"]);
        assert!(found("a.example").is_empty() && found("x").is_empty());
    }
}
