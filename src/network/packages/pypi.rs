//! `pip.conf`, options in `requirements.txt`, and the corresponding variables.

use super::{BLANKS, ConfigFile, ConfiguredHosts, PackageClient, PackageConfig, hosts_in};

pub(super) const CLIENT: PackageClient = PackageClient {
    name: "pypi",
    // The index, and the host of its files.
    defaults: &["pypi.org", "files.pythonhosted.org"],
    project_paths: &["pip.conf", "requirements.txt"],
    image_paths: &[
        "etc/pip.conf",
        "etc/xdg/pip/pip.conf",
        "root/.config/pip/pip.conf",
        "root/.pip/pip.conf",
        "home/agent/.config/pip/pip.conf",
    ],
    path_variables: &[("PIP_CONFIG_FILE", "")],
    read,
};

/// `index-url` replaces the default; `extra-index-url` and `find-links` add to it.
fn read(config: &PackageConfig<'_>, files: &[ConfigFile], found: &mut ConfiguredHosts) {
    for file in files {
        let mut list = String::new();
        for (line, place) in file.lines() {
            let (key, value) = split(line);
            // A list continues over lines without a key.
            if !key.is_empty() {
                list = key.trim_start_matches('-').replace('_', "-");
            }
            let into = match list.as_str() {
                "index-url" | "i" => &mut found.replacing,
                "extra-index-url" | "find-links" | "f" => &mut found.adding,
                _ => continue,
            };
            into.extend(hosts_in(value, BLANKS, &place));
        }
    }
    for name in ["PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"] {
        found.replacing.extend(config.variable(name, &[]));
    }
    for name in ["PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_EXTRA_INDEX_URL"] {
        found.adding.extend(config.variable(name, &[' ']));
    }
}

/// Splits `key = value` of `pip.conf`, and `--key value` or `--key=value` of requirements. The key is empty if the line
/// is a value only.
fn split(line: &str) -> (&str, &str) {
    if line.contains("://") && !line.starts_with('-') && !line.contains('=') {
        return ("", line);
    }
    let separator = if line.starts_with('-') {
        &['=', ' '][..]
    } else {
        &['='][..]
    };
    let (key, value) = line.split_once(separator).unwrap_or((line, ""));
    (key.trim(), value.trim())
}
