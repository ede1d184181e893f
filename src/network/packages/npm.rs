//! `.npmrc`, and the variables that stand for its keys.

use super::{Clients, Found, InImage, or_default};

const DEFAULT: [&str; 1] = ["registry.npmjs.org"];
pub(super) const IN_IMAGE: InImage = InImage {
    paths: &[
        "root/.npmrc",
        "home/agent/.npmrc",
        "etc/npmrc",
        "usr/etc/npmrc",
        "usr/local/etc/npmrc",
    ],
    variables: &[
        ("npm_config_userconfig", ""),
        ("NPM_CONFIG_USERCONFIG", ""),
        ("npm_config_globalconfig", ""),
        ("NPM_CONFIG_GLOBALCONFIG", ""),
    ],
};

/// `registry` replaces the default; `@scope:registry` adds to it.
pub(super) fn hosts(clients: &Clients<'_>) -> Vec<Found> {
    let mut replacing = Vec::new();
    let mut adding = Vec::new();
    for file in clients.files(&[".npmrc"], &IN_IMAGE.paths(clients.env)) {
        for (key, value, place) in file.settings() {
            if key == "registry" {
                replacing.extend(Found::from_url(value, place));
            } else if key.starts_with('@') && key.ends_with(":registry") {
                adding.extend(Found::from_url(value, place));
            }
        }
    }
    for name in ["npm_config_registry", "NPM_CONFIG_REGISTRY"] {
        replacing.extend(clients.variable(name, &[]));
    }
    or_default(replacing, adding, &DEFAULT)
}
