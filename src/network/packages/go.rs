//! Go's module proxies and checksum database.

use super::{Clients, Found, InImage, or_default};

const PROXY: [&str; 1] = ["proxy.golang.org"];
const CHECKSUMS: &str = "sum.golang.org";
pub(super) const IN_IMAGE: InImage = InImage {
    paths: &[
        "root/.config/go/env",
        "home/agent/.config/go/env",
        "usr/local/go/go.env",
    ],
    variables: &[("GOENV", ""), ("GOROOT", "/go.env")],
};
/// One proxy after another, or after a failure of any kind.
const SEPARATORS: [char; 2] = [',', '|'];

/// `GOPROXY` replaces the default. The checksum database stays unless `GOSUMDB` or `GONOSUMDB` say otherwise.
pub(super) fn hosts(clients: &Clients<'_>) -> Vec<Found> {
    let variable = |name: &str| {
        clients
            .env
            .get(name)
            .map(|value| (value.clone(), format!("image:{name}")))
    };
    let proxies = variable("GOPROXY").or_else(|| setting(clients, "GOPROXY"));
    let mut replacing = Vec::new();
    if let Some((value, source)) = &proxies {
        let urls = value.split(SEPARATORS);
        replacing.extend(urls.filter_map(|url| Found::from_url(url.trim(), source.clone())));
    }
    let checksums = variable("GOSUMDB").or_else(|| setting(clients, "GOSUMDB"));
    let adding = match checksums {
        None => vec![Found::by_default(CHECKSUMS)],
        Some((value, _)) if value == "off" => Vec::new(),
        // `name+key url`, or the name of a host alone.
        Some((value, source)) => {
            let last = value.split_whitespace().last().unwrap_or_default();
            let host = last.split('+').next().unwrap_or_default();
            let url = if last.contains("://") {
                last.to_owned()
            } else {
                format!("https://{host}")
            };
            Found::from_url(&url, source).into_iter().collect()
        }
    };
    or_default(replacing, adding, &PROXY)
}

fn setting(clients: &Clients<'_>, key: &str) -> Option<(String, String)> {
    let files = clients.files(&[], &IN_IMAGE.paths(clients.env));
    let mut settings = files.iter().flat_map(super::ClientFile::settings);
    let (_, value, place) = settings.find(|(name, _, _)| *name == key)?;
    Some((value.to_owned(), place))
}
