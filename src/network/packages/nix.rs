//! `nix.conf`: binary caches.

use super::{Clients, Found, InImage, or_default};

const DEFAULT: [&str; 1] = ["cache.nixos.org"];
pub(super) const IN_IMAGE: InImage = InImage {
    paths: &[
        "etc/nix/nix.conf",
        "root/.config/nix/nix.conf",
        "home/agent/.config/nix/nix.conf",
    ],
    variables: &[("NIX_CONF_DIR", "/nix.conf")],
};

/// `substituters` replaces the default; `extra-substituters` and `trusted-substituters` add to it.
pub(super) fn hosts(clients: &Clients<'_>) -> Vec<Found> {
    let mut replacing = Vec::new();
    let mut adding = Vec::new();
    for file in clients.files(&["nix.conf"], &IN_IMAGE.paths(clients.env)) {
        for (key, value, place) in file.settings() {
            let into = match key {
                "substituters" => &mut replacing,
                "extra-substituters" | "trusted-substituters" => &mut adding,
                _ => continue,
            };
            let urls = value.split_whitespace();
            into.extend(urls.filter_map(|url| Found::from_url(url, place.clone())));
        }
    }
    or_default(replacing, adding, &DEFAULT)
}
