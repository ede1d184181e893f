//! `nix.conf`: binary caches.

use super::{Description, PackageConfig, PackageHost, merge};

const DEFAULT: [&str; 1] = ["cache.nixos.org"];
pub(super) const CLIENT: Description = Description {
    name: "nix",
    hosts,
    paths: &[
        "etc/nix/nix.conf",
        "root/.config/nix/nix.conf",
        "home/agent/.config/nix/nix.conf",
    ],
    variables: &[("NIX_CONF_DIR", "/nix.conf")],
};

/// `substituters` replaces the default; `extra-substituters` and `trusted-substituters` add to it.
fn hosts(config: &PackageConfig<'_>) -> Vec<PackageHost> {
    let mut replacing = Vec::new();
    let mut adding = Vec::new();
    for file in config.files(&["nix.conf"], &CLIENT.image_paths(config.env)) {
        for (key, value, place) in file.settings() {
            let into = match key {
                "substituters" => &mut replacing,
                "extra-substituters" | "trusted-substituters" => &mut adding,
                _ => continue,
            };
            let urls = value.split_whitespace();
            into.extend(urls.filter_map(|url| PackageHost::from_url(url, place.clone())));
        }
    }
    merge(replacing, adding, &DEFAULT)
}
