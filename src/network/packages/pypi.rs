//! `pip.conf`, options in `requirements.txt`, and the corresponding variables.

use super::{Description, PackageConfig, PackageHost, merge};

/// The index, and the host of its files.
const DEFAULT: [&str; 2] = ["pypi.org", "files.pythonhosted.org"];
pub(super) const CLIENT: Description = Description {
    name: "pypi",
    hosts,
    paths: &[
        "etc/pip.conf",
        "etc/xdg/pip/pip.conf",
        "root/.config/pip/pip.conf",
        "root/.pip/pip.conf",
        "home/agent/.config/pip/pip.conf",
    ],
    variables: &[("PIP_CONFIG_FILE", "")],
};

/// `index-url` replaces the default; `extra-index-url` and `find-links` add to it.
fn hosts(config: &PackageConfig<'_>) -> Vec<PackageHost> {
    let mut replacing = Vec::new();
    let mut adding = Vec::new();
    for file in config.files(&["pip.conf", "requirements.txt"], &CLIENT.image_paths(config.env)) {
        let mut list = String::new();
        for (line, place) in file.lines() {
            let (key, value) = split(line);
            // A list continues over lines without a key.
            if !key.is_empty() {
                list = key.trim_start_matches('-').replace('_', "-");
            }
            let into = match list.as_str() {
                "index-url" | "i" => &mut replacing,
                "extra-index-url" | "find-links" | "f" => &mut adding,
                _ => continue,
            };
            let urls = value.split_whitespace();
            into.extend(urls.filter_map(|url| PackageHost::from_url(url, place.clone())));
        }
    }
    for name in ["PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"] {
        replacing.extend(config.variable(name, &[]));
    }
    for name in ["PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_EXTRA_INDEX_URL"] {
        adding.extend(config.variable(name, &[' ']));
    }
    merge(replacing, adding, &DEFAULT)
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
