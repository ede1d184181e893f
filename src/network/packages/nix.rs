//! `nix.conf`: binary caches.

use super::{BLANKS, ConfigFile, ConfiguredHosts, PackageClient, PackageConfig, hosts_in};

pub(super) const CLIENT: PackageClient = PackageClient {
    name: "nix",
    defaults: &["cache.nixos.org"],
    project_paths: &["nix.conf"],
    image_paths: &[
        "etc/nix/nix.conf",
        "root/.config/nix/nix.conf",
        "home/agent/.config/nix/nix.conf",
    ],
    path_variables: &[("NIX_CONF_DIR", "/nix.conf")],
    read,
};

/// `substituters` replaces the default; `extra-substituters` and `trusted-substituters` add to it.
fn read(_: &PackageConfig<'_>, files: &[ConfigFile], found: &mut ConfiguredHosts) {
    for (key, value, place) in files.iter().flat_map(ConfigFile::settings) {
        let into = match key {
            "substituters" => &mut found.replacing,
            "extra-substituters" | "trusted-substituters" => &mut found.adding,
            _ => continue,
        };
        into.extend(hosts_in(value, BLANKS, &place));
    }
}
