//! `pip.conf`, options in `requirements.txt`, and the variables that stand for them.

use super::{Clients, Found, InImage, or_default};

/// The index, and where its files are.
const DEFAULT: [&str; 2] = ["pypi.org", "files.pythonhosted.org"];
pub(super) const IN_IMAGE: InImage = InImage {
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
pub(super) fn hosts(clients: &Clients<'_>) -> Vec<Found> {
    let mut replacing = Vec::new();
    let mut adding = Vec::new();
    for file in clients.files(&["pip.conf", "requirements.txt"], &IN_IMAGE.paths(clients.env)) {
        let mut list = None;
        for (line, place) in file.lines() {
            let (key, value) = split(line);
            // A list goes on over lines that hold no key of their own.
            list = if key.is_empty() { list } else { Kind::of(key) };
            let into = match list {
                Some(Kind::Replaces) => &mut replacing,
                Some(Kind::Adds) => &mut adding,
                None => continue,
            };
            let urls = value.split_whitespace();
            into.extend(urls.filter_map(|url| Found::from_url(url, place.clone())));
        }
    }
    for name in ["PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"] {
        replacing.extend(clients.variable(name, &[]));
    }
    for name in ["PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_EXTRA_INDEX_URL"] {
        adding.extend(clients.variable(name, &[' ']));
    }
    or_default(replacing, adding, &DEFAULT)
}

#[derive(Clone, Copy)]
enum Kind {
    Replaces,
    Adds,
}

impl Kind {
    fn of(key: &str) -> Option<Self> {
        match key.trim_start_matches('-').replace('_', "-").as_str() {
            "index-url" | "i" => Some(Self::Replaces),
            "extra-index-url" | "find-links" | "f" => Some(Self::Adds),
            _ => None,
        }
    }
}

/// `key = value` of a `pip.conf`, `--key value` or `--key=value` of requirements; no key when it is a value alone.
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
