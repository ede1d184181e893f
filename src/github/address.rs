//! From the address of a git remote to the repository's name on GitHub.

use crate::id::RepositoryName;

/// The repository that a remote's address names, if its host is that of `url` (for example `https://github.com`).
///
/// ```
/// use ralph::github::repository_name;
///
/// let name = repository_name("git@github.com:rust-lang/cargo.git", "https://github.com");
/// assert_eq!(name.map(|name| name.to_string()).as_deref(), Some("rust-lang/cargo"));
/// ```
#[must_use]
pub fn repository_name(address: &str, url: &str) -> Option<RepositoryName> {
    let host = after_scheme(url).trim_end_matches('/');
    let (found, path) = match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?,
        // As scp writes it: `git@host:owner/name`.
        None => address.split_once(':')?,
    };
    let found = found.rsplit('@').next()?;
    // An SSH port says nothing about the port of HTTP.
    let is_ssh = !address.starts_with("http");
    let same = if is_ssh {
        without_port(found).eq_ignore_ascii_case(without_port(host))
    } else {
        found.eq_ignore_ascii_case(host)
    };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    same.then(|| RepositoryName::parse(path).ok()).flatten()
}

fn after_scheme(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, rest)| rest)
}

fn without_port(host: &str) -> &str {
    host.split(':').next().unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://github.com/o/r.git", Some("o/r"))]
    #[case("https://github.com/o/r/", Some("o/r"))]
    #[case("https://user@GitHub.com/o/r", Some("o/r"))]
    #[case("git@github.com:o/r.git", Some("o/r"))]
    #[case("ssh://git@github.com:22/o/r.git", Some("o/r"))]
    #[case("https://github.com.evil.example/o/r", None)]
    #[case("https://github.com:8443/o/r", None)]
    #[case("https://gitlab.com/o/r", None)]
    #[case("https://github.com/o", None)]
    #[case("https://github.com/o/r/tree", None)]
    #[case("/srv/git/r.git", None)]
    fn a_remote_names_its_repository(#[case] address: &str, #[case] expected: Option<&str>) {
        let found = repository_name(address, "https://github.com").map(|name| name.to_string());
        assert_eq!(found.as_deref(), expected);
    }
}
