//! `.npmrc`, and the corresponding variables.

use super::{ConfigFile, ConfiguredHosts, PackageClient, PackageConfig, PackageHost};

pub(super) const CLIENT: PackageClient = PackageClient {
    name: "npm",
    defaults: &["registry.npmjs.org"],
    project_paths: &[".npmrc"],
    image_paths: &[
        "root/.npmrc",
        "home/agent/.npmrc",
        "etc/npmrc",
        "usr/etc/npmrc",
        "usr/local/etc/npmrc",
    ],
    path_variables: &[
        ("npm_config_userconfig", ""),
        ("NPM_CONFIG_USERCONFIG", ""),
        ("npm_config_globalconfig", ""),
        ("NPM_CONFIG_GLOBALCONFIG", ""),
    ],
    read,
};

/// `registry` replaces the default; `@scope:registry` adds to it.
fn read(config: &PackageConfig<'_>, files: &[ConfigFile], found: &mut ConfiguredHosts) {
    for (key, value, place) in files.iter().flat_map(ConfigFile::settings) {
        if key == "registry" {
            found.replacing.extend(PackageHost::from_url(value, &place));
        } else if key.starts_with('@') && key.ends_with(":registry") {
            found.adding.extend(PackageHost::from_url(value, &place));
        }
    }
    for name in ["npm_config_registry", "NPM_CONFIG_REGISTRY"] {
        found.replacing.extend(config.variable(name, &[]));
    }
}
