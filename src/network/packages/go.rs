//! Go's module proxies and checksum database.

use super::{Description, PackageConfig, PackageHost, merge};

const PROXY: [&str; 1] = ["proxy.golang.org"];
const CHECKSUMS: &str = "sum.golang.org";
pub(super) const CLIENT: Description = Description {
    name: "go",
    hosts,
    paths: &[
        "root/.config/go/env",
        "home/agent/.config/go/env",
        "usr/local/go/go.env",
    ],
    variables: &[("GOENV", ""), ("GOROOT", "/go.env")],
};
/// `,` and `|` differ in when Go tries the next proxy.
const SEPARATORS: [char; 2] = [',', '|'];

/// `GOPROXY` replaces the default. The checksum database stays unless `GOSUMDB` or `GONOSUMDB` say otherwise.
fn hosts(config: &PackageConfig<'_>) -> Vec<PackageHost> {
    let variable = |name: &str| {
        config
            .env
            .get(name)
            .map(|value| (value.clone(), format!("image:{name}")))
    };
    let proxies = variable("GOPROXY").or_else(|| setting(config, "GOPROXY"));
    let mut replacing = Vec::new();
    if let Some((value, source)) = &proxies {
        let urls = value.split(SEPARATORS);
        replacing.extend(urls.filter_map(|url| PackageHost::from_url(url.trim(), source.clone())));
    }
    let checksums = variable("GOSUMDB").or_else(|| setting(config, "GOSUMDB"));
    let adding = match checksums {
        None => vec![PackageHost::by_default(CHECKSUMS)],
        Some((value, _)) if value == "off" => Vec::new(),
        // `name+key url`, or a host name only.
        Some((value, source)) => {
            let last = value.split_whitespace().last().unwrap_or_default();
            let host = last.split('+').next().unwrap_or_default();
            let url = if last.contains("://") {
                last.to_owned()
            } else {
                format!("https://{host}")
            };
            PackageHost::from_url(&url, source).into_iter().collect()
        }
    };
    merge(replacing, adding, &PROXY)
}

fn setting(config: &PackageConfig<'_>, key: &str) -> Option<(String, String)> {
    let files = config.files(&[], &CLIENT.image_paths(config.env));
    let mut settings = files.iter().flat_map(super::ConfigFile::settings);
    let (_, value, place) = settings.find(|(name, _, _)| *name == key)?;
    Some((value.to_owned(), place))
}
