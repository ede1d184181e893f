//! One rule of a policy: `[METHODS ]HOST[:PORT][/PATH]`.

use std::iter::once;
use std::sync::Arc;

use thiserror::Error;
use unicode_normalization::UnicodeNormalization;

use super::host::{HostName, HostNameError};
use super::pattern::{HostPattern, WEB_PORTS};
use super::request::RequestContent;
use super::verdict::PolicyLine;

/// The longest rule that [`PolicyRule::narrowest`] suggests, in bytes.
const LONGEST: usize = 256;

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// The hosts that it covers.
    pub pattern: HostPattern,
    /// Empty for every method.
    methods: Vec<String>,
    path: Option<PathPattern>,
    /// The text and the place of the rule.
    pub line: Arc<PolicyLine>,
}

/// Whether a rule applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It does not apply.
    No,
    /// It applies to this host by method or path, which are not visible.
    NotInspected,
    /// It applies.
    Yes,
}

impl PolicyRule {
    /// Parses a rule such as `github.com`, `*.example.org:8443` or `GET,HEAD docs.example.org/api/*`.
    pub fn parse(text: &str) -> Result<Self, PolicyRuleError> {
        let (methods, rest) = match text.split_once(' ') {
            Some((methods, rest)) => (parse_methods(methods)?, rest.trim_start()),
            None => (Vec::new(), text),
        };
        if rest.contains("://") {
            return Err(PolicyRuleError(format!(
                "`{text}` has a scheme: expected a host with an optional port and path"
            )));
        }
        let (host, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(PathPattern::parse(&rest[at..])?)),
            None => (rest, None),
        };
        Ok(Self {
            pattern: HostPattern::parse(host)?,
            methods,
            path,
            line: Arc::new(PolicyLine {
                text: text.to_owned(),
                place: String::new(),
            }),
        })
    }

    /// The narrowest rule of at most [`LONGEST`] bytes that would allow the request.
    pub(super) fn narrowest(name: &HostName, port: u16, content: &RequestContent) -> String {
        let host = if WEB_PORTS.contains(&port) {
            name.to_string()
        } else {
            format!("{name}:{port}")
        };
        let RequestContent::Http { method, path } = content else {
            return host;
        };
        let lets_through = |line: &String| {
            let rule = Self::parse(line);
            // A quote would end the string in the configuration file.
            line.len() <= LONGEST
                && !line.contains('"')
                && rule.is_ok_and(|rule| rule.allows(name, port, content) == Fit::Yes)
        };
        let lines = [
            format!("{method} {host}{}", without_query(path)),
            format!("{method} {host}"),
        ];
        lines.into_iter().find(lets_through).unwrap_or(host)
    }

    /// Sets the place of the rule, for example `ralph.toml:3:12`.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        place.clone_into(&mut Arc::make_mut(&mut self.line).place);
        self
    }

    /// Whether it covers all requests to its hosts, not only some methods or paths.
    #[must_use]
    pub fn is_host_only(&self) -> bool {
        self.methods.is_empty() && self.path.is_none()
    }

    /// Whether it allows the request. Without a port, it allows the web ports only.
    pub(super) fn allows(&self, name: &HostName, port: u16, content: &RequestContent) -> Fit {
        let ports = self
            .pattern
            .port
            .as_ref()
            .map_or(&WEB_PORTS[..], std::slice::from_ref);
        if !self.pattern.covers(name) || !ports.contains(&port) {
            return Fit::No;
        }
        self.fit(content, str::eq, PathPattern::surely_covers)
    }

    /// Whether it denies the request. Without a port, it denies every port.
    pub(super) fn denies(&self, name: &HostName, port: u16, content: &RequestContent) -> Fit {
        if !self.pattern.covers_at(name, port) {
            return Fit::No;
        }
        // Some servers ignore the case of a method.
        self.fit(content, str::eq_ignore_ascii_case, PathPattern::perhaps_covers)
    }

    /// Whether it covers every port, method and path of the name.
    pub(super) fn denies_all_of(&self, name: &HostName) -> bool {
        self.pattern.covers(name) && self.pattern.port.is_none() && self.is_host_only()
    }

    fn fit(
        &self,
        content: &RequestContent,
        is: fn(&str, &str) -> bool,
        covers: fn(&PathPattern, &str) -> bool,
    ) -> Fit {
        match content {
            _ if self.is_host_only() => Fit::Yes,
            RequestContent::Opaque => Fit::NotInspected,
            RequestContent::Http { method, path } => {
                let method = self.methods.is_empty() || self.methods.iter().any(|own| is(own, method));
                let path = self.path.as_ref().is_none_or(|pattern| covers(pattern, path));
                if method && path { Fit::Yes } else { Fit::No }
            }
        }
    }
}

/// The paths that a rule covers: `/exactly/this` or `/all/below/*`. The query is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PathPattern(String);

impl PathPattern {
    fn parse(text: &str) -> Result<Self, PolicyRuleError> {
        let stars = text.matches('*').count();
        let star_at_the_end = stars == 0 || (stars == 1 && text.ends_with("/*"));
        if star_at_the_end && is_plain(text) && !text.contains(['?', '#', ' ']) {
            Ok(Self(text.to_owned()))
        } else {
            Err(PolicyRuleError(format!(
                "`{text}` is not a path such as `/exactly/this` or `/all/below/*`"
            )))
        }
    }

    fn covers(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => path.starts_with(prefix),
            None => path == self.0,
        }
    }

    /// For rules that allow: an ambiguous path is never covered.
    fn surely_covers(&self, target: &str) -> bool {
        let path = without_query(target);
        is_plain(path) && self.covers(path)
    }

    /// For rules that deny: an ambiguous path is always covered.
    fn perhaps_covers(&self, target: &str) -> bool {
        let path = without_query(target);
        !is_plain(path) || self.covers(path)
    }
}

fn without_query(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

/// Whether all servers interpret the path alike: no `..`, no doubled or encoded slashes, no needless escapes, and none that
/// some servers decode to other characters. No client sends a `#`, and servers differ about it.
fn is_plain(path: &str) -> bool {
    let ambiguous = ["//", "\\", ";", "#"];
    let dots = |segment: &str| segment == "." || segment == "..";
    let mut escapes = path.split('%').skip(1);
    path.starts_with('/')
        && !ambiguous.iter().any(|part| path.contains(part))
        && !path.split('/').any(dots)
        && escapes.all(is_plain_escape)
        && decodes_alike(path)
}

/// Whether the escaped bytes are UTF-8, and no server could take a character for one of ASCII. Lenient decoders accept `/`
/// in more bytes than it has, and some systems replace characters by similar ones.
fn decodes_alike(path: &str) -> bool {
    let mut pieces = path.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).unwrap_or(("", piece));
        bytes.extend(u8::from_str_radix(digits, 16));
        bytes.extend(rest.bytes());
    }
    let Ok(text) = String::from_utf8(bytes) else {
        return false;
    };
    let mut others = text.chars().filter(|c| !c.is_ascii());
    !others.any(|c| once(c).nfkc().any(|c| c.is_ascii()))
}

/// Whether the escape after a `%` is valid, needed, and not part of the path syntax.
fn is_plain_escape(after: &str) -> bool {
    let digits = after
        .get(..2)
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
    byte.is_some_and(|byte| !byte.is_ascii_alphanumeric() && !b"-._~/\\;%\0".contains(&byte))
}

fn parse_methods(text: &str) -> Result<Vec<String>, PolicyRuleError> {
    let is_method = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase());
    let words: Vec<String> = text.split(',').map(str::to_owned).collect();
    if words.iter().all(|word| is_method(word)) {
        Ok(words)
    } else {
        Err(PolicyRuleError(format!(
            "`{text}` is not a list of methods such as `GET,HEAD`"
        )))
    }
}

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct PolicyRuleError(pub(super) String);

impl From<HostNameError> for PolicyRuleError {
    fn from(error: HostNameError) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[track_caller]
    fn check(
        fit: impl Fn(&PolicyRule, &HostName, &RequestContent) -> Fit,
        rule: &str,
        request: &str,
        expected: Fit,
    ) {
        let (method, path) = request.split_once(' ').unwrap();
        let rule = PolicyRule::parse(rule).unwrap();
        let content = RequestContent::http(method, path);
        let name = HostName::parse("a.example").unwrap();
        assert_eq!(fit(&rule, &name, &content), expected, "{rule:?} {request}");
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
    #[case::fragment("a.example/x/*", "GET /x/#/../../y", Fit::No)]
    #[case::fragment_of_a_whole_path("a.example/x", "GET /x#y", Fit::No)]
    #[case::in_the_query("a.example/x", "GET /x?y#z", Fit::Yes)]
    #[case::umlaut("a.example/x/*", "GET /x/%C3%A4", Fit::Yes)]
    #[case::two_byte_slash("a.example/x/*", "GET /x/..%c0%afy", Fit::No)]
    #[case::two_byte_dots("a.example/x/*", "GET /x/%c0%ae%c0%ae/y", Fit::No)]
    #[case::three_byte_slash("a.example/x/*", "GET /x/..%e0%80%afy", Fit::No)]
    #[case::four_byte_slash("a.example/x/*", "GET /x/..%f0%80%80%afy", Fit::No)]
    #[case::half_a_character("a.example/x/*", "GET /x/%C3", Fit::No)]
    #[case::wide_slash("a.example/x/*", "GET /x/..%EF%BC%8Fy", Fit::No)]
    #[case::wide_dots("a.example/x/*", "GET /x/%EF%BC%8E%EF%BC%8E/y", Fit::No)]
    fn an_allowing_rule_needs_method_and_path(#[case] rule: &str, #[case] request: &str, #[case] fit: Fit) {
        check(
            |rule, name, content| rule.allows(name, 443, content),
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
    #[case::fragment("a.example/x/*", "GET /#/../x/z", Fit::Yes)]
    #[case::two_byte_slash("a.example/x/*", "GET /y/..%c0%afx/z", Fit::Yes)]
    #[case::method_of_another_case("POST a.example", "post /x", Fit::Yes)]
    #[case::other_method("POST a.example", "GET /x", Fit::No)]
    fn a_denying_rule_covers_ambiguous_paths(#[case] rule: &str, #[case] request: &str, #[case] fit: Fit) {
        check(
            |rule, name, content| rule.denies(name, 8080, content),
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
    #[case("user@a.example", "host name")]
    #[case("127.0.0.1:80", "host name")]
    fn an_invalid_rule_is_refused(#[case] text: &str, #[case] expected: &str) {
        let error = PolicyRule::parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
