//! One line of a policy: `[METHODS ]HOST[:PORT][/PATH]`.

use std::sync::Arc;

use thiserror::Error;

use super::host::{HostName, HostNameError};
use super::pattern::{HostPattern, WEB_PORTS};
use super::request::Seen;
use super::verdict::Line;

/// The longest line that is made of a request.
const LONGEST: usize = 256;

/// One line of a policy, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pattern: HostPattern,
    /// Empty for every method.
    methods: Vec<String>,
    path: Option<PathPattern>,
    line: Arc<Line>,
}

/// How far a rule applies to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It does not.
    No,
    /// It is about this host, and methods or paths that nobody can see here.
    Unseen,
    /// It does.
    Yes,
}

impl Rule {
    /// Reads a line such as `github.com`, `*.example.org:8443` or `GET,HEAD docs.example.org/api/*`.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let (methods, rest) = match text.split_once(' ') {
            Some((methods, rest)) => (parse_methods(methods)?, rest.trim_start()),
            None => (Vec::new(), text),
        };
        if rest.contains("://") {
            return Err(RuleError::Scheme(text.to_owned()));
        }
        let (host, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(PathPattern::parse(&rest[at..])?)),
            None => (rest, None),
        };
        Ok(Self {
            pattern: HostPattern::parse(host)?,
            methods,
            path,
            line: Arc::new(Line::new(text, "")),
        })
    }

    /// The narrowest line that would let something through, as far as that can be said in one of sensible length.
    pub(super) fn narrowest(name: &HostName, port: u16, seen: &Seen) -> String {
        let host = if WEB_PORTS.contains(&port) {
            name.to_string()
        } else {
            format!("{name}:{port}")
        };
        let Seen::Http { method, path } = seen else {
            return host;
        };
        let lets_through = |line: &String| {
            let rule = Self::parse(line);
            // A quote would end the line where it is written down.
            line.len() <= LONGEST
                && !line.contains('"')
                && rule.is_ok_and(|rule| rule.allows(name, port, seen) == Fit::Yes)
        };
        let lines = [
            format!("{method} {host}{}", without_query(path)),
            format!("{method} {host}"),
        ];
        lines.into_iter().find(lets_through).unwrap_or(host)
    }

    /// The rule, with where it stands, for example `ralph.toml:3:12`.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.line = Arc::new(Line::new(self.line.text(), place));
        self
    }

    /// What the rule says and where.
    #[must_use]
    pub fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Which hosts it is about.
    #[must_use]
    pub fn pattern(&self) -> &HostPattern {
        &self.pattern
    }

    /// Whether it is about all requests to its hosts, and not only about some methods or paths.
    #[must_use]
    pub fn is_about_hosts_alone(&self) -> bool {
        self.methods.is_empty() && self.path.is_none()
    }

    /// Whether as an allowing rule it lets this through. Without a port it means the ports of the web.
    pub(super) fn allows(&self, name: &HostName, port: u16, seen: &Seen) -> Fit {
        let ports = self
            .pattern
            .port
            .as_ref()
            .map_or(&WEB_PORTS[..], std::slice::from_ref);
        if !self.pattern.covers(name) || !ports.contains(&port) {
            return Fit::No;
        }
        self.fit(seen, str::eq, PathPattern::surely_covers)
    }

    /// Whether as a denying rule it stops this. Without a port it means every port.
    pub(super) fn denies(&self, name: &HostName, port: u16, seen: &Seen) -> Fit {
        if !self.pattern.covers_at(name, port) {
            return Fit::No;
        }
        // Some servers take a method in any case.
        self.fit(seen, str::eq_ignore_ascii_case, PathPattern::perhaps_covers)
    }

    /// Whether it is about every port, method and path of the name.
    pub(super) fn is_about_all_of(&self, name: &HostName) -> bool {
        self.pattern.covers(name)
            && self.pattern.port.is_none()
            && self.methods.is_empty()
            && self.path.is_none()
    }

    fn fit(&self, seen: &Seen, is: fn(&str, &str) -> bool, covers: fn(&PathPattern, &str) -> bool) -> Fit {
        match seen {
            _ if self.methods.is_empty() && self.path.is_none() => Fit::Yes,
            Seen::Nothing => Fit::Unseen,
            Seen::Http { method, path } => {
                let method = self.methods.is_empty() || self.methods.iter().any(|own| is(own, method));
                let path = self.path.as_ref().is_none_or(|pattern| covers(pattern, path));
                if method && path { Fit::Yes } else { Fit::No }
            }
        }
    }
}

/// Which paths a rule is about: `/exactly/this`, or `/all/below/*`. The query does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern(String);

impl PathPattern {
    fn parse(text: &str) -> Result<Self, RuleError> {
        let stars = text.matches('*').count();
        let star_at_the_end = stars == 0 || (stars == 1 && text.ends_with("/*"));
        if star_at_the_end && is_plain(text) && !text.contains(['?', '#', ' ']) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RuleError::Path(text.to_owned()))
        }
    }

    fn covers(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == self.0,
        }
    }

    /// A path that a server may read in two ways is covered by nothing.
    fn surely_covers(&self, target: &str) -> bool {
        let path = without_query(target);
        is_plain(path) && self.covers(path)
    }

    /// A path that a server may read in two ways may be this one.
    fn perhaps_covers(&self, target: &str) -> bool {
        let path = without_query(target);
        !is_plain(path) || self.covers(path)
    }
}

fn without_query(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or(target)
}

/// Whether every server takes the path to mean the same: no `..`, no doubled or encoded slashes, nothing escaped that
/// need not be.
fn is_plain(path: &str) -> bool {
    let ambiguous = ["//", "\\", ";"];
    let dots = |segment: &str| segment == "." || segment == "..";
    let mut escapes = path.split('%').skip(1);
    path.starts_with('/')
        && !ambiguous.iter().any(|part| path.contains(part))
        && !path.split('/').any(dots)
        && escapes.all(is_plain_escape)
}

/// Whether what follows a `%` can only be meant as that byte, and is no part of the path's own grammar.
fn is_plain_escape(after: &str) -> bool {
    let digits = after
        .get(..2)
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
    byte.is_some_and(|byte| !byte.is_ascii_alphanumeric() && !b"-._~/\\;%\0".contains(&byte))
}

fn parse_methods(text: &str) -> Result<Vec<String>, RuleError> {
    let is_method = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase());
    let words: Vec<String> = text.split(',').map(str::to_owned).collect();
    if words.iter().all(|word| is_method(word)) {
        Ok(words)
    } else {
        Err(RuleError::Method(text.to_owned()))
    }
}

/// What is wrong with a line of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The host is none.
    #[error(transparent)]
    Host(HostNameError),
    /// The port is none.
    #[error("`{0}` is no port: a number from 1 to 65535")]
    Port(String),
    /// It would cover names of everybody.
    #[error("`{0}` is too wide: a wildcard needs at least two labels after it")]
    TooWide(String),
    /// It holds a scheme.
    #[error("`{0}` has a scheme; a rule is a host, with a port and a path where needed")]
    Scheme(String),
    /// A method is none.
    #[error("`{0}` is no list of methods such as `GET,HEAD`")]
    Method(String),
    /// The path is none that every server reads alike.
    #[error("`{0}` is no path such as `/exactly/this` or `/all/below/*`")]
    Path(String),
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[track_caller]
    fn check(fit: impl Fn(&Rule, &HostName, &Seen) -> Fit, rule: &str, request: &str, expected: Fit) {
        let (method, path) = request.split_once(' ').unwrap();
        let rule = Rule::parse(rule).unwrap();
        let seen = Seen::http(method, path);
        let name = HostName::parse("a.example").unwrap();
        assert_eq!(fit(&rule, &name, &seen), expected, "{rule:?} {request}");
    }

    #[rstest]
    #[case::any("a.example", "POST /x", Fit::Yes)]
    #[case::method("GET a.example", "GET /x", Fit::Yes)]
    #[case::one_of_two("GET,HEAD a.example", "HEAD /", Fit::Yes)]
    #[case::other_method("GET a.example", "POST /x", Fit::No)]
    #[case::method_of_another_case("GET a.example", "get /x", Fit::No)]
    #[case::path("a.example/x", "GET /x?y=1", Fit::Yes)]
    #[case::longer_path("a.example/x", "GET /xy", Fit::No)]
    #[case::below("a.example/x/*", "GET /x/y/z", Fit::Yes)]
    #[case::not_below("a.example/x/*", "GET /x", Fit::No)]
    #[case::upwards("a.example/x/*", "GET /x/../y", Fit::No)]
    #[case::encoded_upwards("a.example/x/*", "GET /x/%2E%2e/y", Fit::No)]
    #[case::encoded_slash("a.example/x/*", "GET /x/..%2fy", Fit::No)]
    #[case::backslash("a.example/x/*", "GET /x/..\\y", Fit::No)]
    #[case::doubled_slash("a.example/x/*", "GET /x//y", Fit::No)]
    #[case::a_space("a.example/x/*", "GET /x/a%20b", Fit::Yes)]
    #[case::encoded_letter("a.example/x/*", "GET /x/%61", Fit::No)]
    #[case::broken_escape("a.example/x/*", "GET /x/%6", Fit::No)]
    #[case::star("a.example/x/*", "OPTIONS *", Fit::No)]
    fn an_allowing_rule_needs_method_and_path(#[case] rule: &str, #[case] request: &str, #[case] fit: Fit) {
        check(
            |rule, name, seen| rule.allows(name, 443, seen),
            rule,
            request,
            fit,
        );
    }

    #[rstest]
    #[case::below("a.example/x/*", "GET /x/y", Fit::Yes)]
    #[case::elsewhere("a.example/x/*", "GET /y", Fit::No)]
    #[case::in_doubt("a.example/x/*", "GET /y/%2e%2e/x/z", Fit::Yes)]
    #[case::encoded_letter("a.example/x/*", "GET /%78/z", Fit::Yes)]
    #[case::method_of_another_case("POST a.example", "post /x", Fit::Yes)]
    #[case::other_method("POST a.example", "GET /x", Fit::No)]
    fn a_denying_rule_stops_what_may_be_meant(#[case] rule: &str, #[case] request: &str, #[case] fit: Fit) {
        check(
            |rule, name, seen| rule.denies(name, 8080, seen),
            rule,
            request,
            fit,
        );
    }

    #[rstest]
    #[case("https://a.example", "scheme")]
    #[case("get a.example", "methods")]
    #[case("GET, a.example", "methods")]
    #[case("a.example/x/*/y", "path")]
    #[case("a.example/x*", "path")]
    #[case("a.example/../x", "path")]
    #[case("a.example/x?y", "path")]
    #[case("user@a.example", "name of a host")]
    #[case("127.0.0.1:80", "name of a host")]
    fn a_rule_that_cannot_hold_is_refused(#[case] text: &str, #[case] expected: &str) {
        let error = Rule::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
