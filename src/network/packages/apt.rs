//! The sources of apt, in both formats.

use super::{BLANKS, ConfigFile, ConfiguredHosts, PackageClient, PackageConfig, PackageHost, hosts_in};

const DIRECTORY: &str = "etc/apt/sources.list.d";
pub(super) const CLIENT: PackageClient = PackageClient {
    name: "apt",
    // apt itself has no default; these are Debian's.
    defaults: &["deb.debian.org", "security.debian.org"],
    project_paths: &[],
    image_paths: &["etc/apt/sources.list", DIRECTORY],
    path_variables: &[],
    read,
};

/// Every source of the image.
fn read(config: &PackageConfig<'_>, files: &[ConfigFile], found: &mut ConfiguredHosts) {
    let names = config.image.names(DIRECTORY);
    let of_kind = |extension: &str| {
        let names = names.iter().filter(|name| name.ends_with(extension));
        let paths: Vec<String> = names.map(|name| format!("{DIRECTORY}/{name}")).collect();
        config.files(&[], &paths)
    };
    for (line, place) in files.iter().chain(&of_kind(".list")).flat_map(ConfigFile::lines) {
        found.replacing.extend(one_line_source(line, &place));
    }
    for file in of_kind(".sources") {
        found.replacing.extend(deb822_sources(&file));
    }
}

/// `deb [options] URI suite components`
fn one_line_source(line: &str, place: &str) -> Option<PackageHost> {
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
            stanza.extend(hosts_in(value, BLANKS, &place));
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
