//! Go's module proxies and checksum database.

use super::{ConfigFile, ConfiguredHosts, PackageClient, PackageConfig, PackageHost, hosts_in};

const CHECKSUMS: &str = "sum.golang.org";
pub(super) const CLIENT: PackageClient = PackageClient {
    name: "go",
    defaults: &["proxy.golang.org"],
    project_paths: &[],
    image_paths: &[
        "root/.config/go/env",
        "home/agent/.config/go/env",
        "usr/local/go/go.env",
    ],
    path_variables: &[("GOENV", ""), ("GOROOT", "/go.env")],
    read,
};

/// `GOPROXY` replaces the default. The checksum database stays unless `GOSUMDB` says otherwise.
fn read(config: &PackageConfig<'_>, files: &[ConfigFile], found: &mut ConfiguredHosts) {
    let setting = |name: &str| {
        if let Some(value) = config.env.get(name) {
            return Some((value.as_str(), format!("image:{name}")));
        }
        let mut settings = files.iter().flat_map(ConfigFile::settings);
        let (_, value, place) = settings.find(|(key, _, _)| *key == name)?;
        Some((value, place))
    };
    if let Some((value, source)) = setting("GOPROXY") {
        // The separators differ in when Go tries the next proxy.
        found.replacing = hosts_in(value, &[',', '|'], &source);
    }
    match setting("GOSUMDB") {
        None => found.adding.push(PackageHost::by_default(CHECKSUMS)),
        Some(("off", _)) => {}
        // `name+key url`, or a host name only.
        Some((value, source)) => {
            let last = value.split_whitespace().last().unwrap_or_default();
            let host = last.split('+').next().unwrap_or_default();
            let url = if last.contains("://") {
                last.to_owned()
            } else {
                format!("https://{host}")
            };
            found.adding.extend(PackageHost::from_url(&url, &source));
        }
    }
}
