//! The sources of apt, in both formats.

use super::{ConfigFile, Description, PackageConfig, PackageHost, merge};

/// apt itself has no default; these are Debian's.
const DEFAULT: [&str; 2] = ["deb.debian.org", "security.debian.org"];
const FILE: &str = "etc/apt/sources.list";
const DIRECTORY: &str = "etc/apt/sources.list.d";
pub(super) const CLIENT: Description = Description {
    name: "apt",
    hosts,
    paths: &[FILE, DIRECTORY],
    variables: &[],
};

/// Every source of the image.
fn hosts(config: &PackageConfig<'_>) -> Vec<PackageHost> {
    let in_directory: Vec<String> = config
        .image
        .names(DIRECTORY)
        .into_iter()
        .map(|name| format!("{DIRECTORY}/{name}"))
        .collect();
    let of_kind = |extension: &str| -> Vec<String> {
        let paths = in_directory.iter().filter(|path| path.ends_with(extension));
        paths.cloned().collect()
    };
    let mut one_line = vec![FILE.to_owned()];
    one_line.extend(of_kind(".list"));

    let mut hosts = Vec::new();
    for file in config.files(&[], &one_line) {
        hosts.extend(
            file.lines()
                .filter_map(|(line, place)| one_line_source(line, place)),
        );
    }
    for file in config.files(&[], &of_kind(".sources")) {
        hosts.extend(deb822_sources(&file));
    }
    merge(hosts, Vec::new(), &DEFAULT)
}

/// `deb [options] URI suite components`
fn one_line_source(line: &str, place: String) -> Option<PackageHost> {
    let rest = line
        .strip_prefix("deb-src")
        .or_else(|| line.strip_prefix("deb"))?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    PackageHost::from_url(rest.split_whitespace().next()?, place)
}

/// Stanzas of `Key: value` lines. A value may continue on indented lines.
fn deb822_sources(file: &ConfigFile) -> Vec<PackageHost> {
    let mut hosts = Vec::new();
    let mut stanza = Vec::new();
    let mut enabled = true;
    let mut in_uris = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.trim().is_empty() {
            hosts.append(&mut keep(&mut stanza, enabled));
            (enabled, in_uris) = (true, false);
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let value = match line.split_once(':').filter(|_| !line.starts_with([' ', '\t'])) {
            Some((key, value)) => {
                in_uris = key.eq_ignore_ascii_case("URIs");
                enabled &= !(key.eq_ignore_ascii_case("Enabled") && is_no(value));
                value
            }
            None => line,
        };
        if in_uris {
            let place = format!("{}:{}", file.shown, index + 1);
            let urls = value.split_whitespace();
            stanza.extend(urls.filter_map(|url| PackageHost::from_url(url, place.clone())));
        }
    }
    hosts.append(&mut keep(&mut stanza, enabled));
    hosts
}

fn keep(stanza: &mut Vec<PackageHost>, enabled: bool) -> Vec<PackageHost> {
    let hosts = std::mem::take(stanza);
    if enabled { hosts } else { Vec::new() }
}

fn is_no(value: &str) -> bool {
    let no = ["no", "false", "without", "off", "disable", "0"];
    no.iter().any(|word| value.trim().eq_ignore_ascii_case(word))
}
