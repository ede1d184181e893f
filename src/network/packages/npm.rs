//! `.npmrc`, and the corresponding variables.

use super::{Description, PackageConfig, PackageHost, merge};

const DEFAULT: [&str; 1] = ["registry.npmjs.org"];
pub(super) const CLIENT: Description = Description {
    name: "npm",
    hosts,
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
fn hosts(config: &PackageConfig<'_>) -> Vec<PackageHost> {
    let mut replacing = Vec::new();
    let mut adding = Vec::new();
    for file in config.files(&[".npmrc"], &CLIENT.image_paths(config.env)) {
        for (key, value, place) in file.settings() {
            if key == "registry" {
                replacing.extend(PackageHost::from_url(value, place));
            } else if key.starts_with('@') && key.ends_with(":registry") {
                adding.extend(PackageHost::from_url(value, place));
            }
        }
    }
    for name in ["npm_config_registry", "NPM_CONFIG_REGISTRY"] {
        replacing.extend(config.variable(name, &[]));
    }
    merge(replacing, adding, &DEFAULT)
}
