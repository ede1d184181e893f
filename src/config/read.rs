//! Parses values into the types of settings. Each function describes what it expects; the caller adds the position of the
//! value. A function that returns any `T: From<X>` also serves a setting that may be absent, as an `Option<X>`.

use std::fmt;
use std::num::{NonZeroI64, NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Unexpected, Visitor};

use super::quantity;
use super::value::ConfigValue;
use crate::id::RepositoryName;
use crate::image::ImageReference;
use crate::network::{AddressRange, HostPattern, PolicyRule, Preset};
use crate::nix::{Attribute, InputPath};
use crate::usage::Usd;

/// A text that is not empty.
pub(super) fn text<'de, D: Deserializer<'de>, T: From<String>>(from: D) -> Result<T, D::Error> {
    parsed(from, "a text that is not empty", |text| {
        (!text.trim().is_empty()).then(|| text.to_owned())
    })
}

/// A repository on GitHub.
pub(super) fn repository<'de, D: Deserializer<'de>>(from: D) -> Result<Option<RepositoryName>, D::Error> {
    let expected = "a repository on GitHub such as \"rust-lang/cargo\"";
    parsed(from, expected, |text| RepositoryName::parse(text).ok())
}

/// A budget that is a count.
pub(super) fn budget_count<'de, D: Deserializer<'de>>(from: D) -> Result<NonZeroU32, D::Error> {
    whole(
        from,
        "a whole number of at least 1 (a budget is always finite; 0 does not mean unlimited)",
    )
}

/// A budget of tokens.
pub(super) fn budget_tokens<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    whole(
        from,
        "a whole number of at least 1 (a budget is always finite; leave it out to count by cost alone)",
    )
    .map(Some)
}

/// Minutes; at least one.
pub(super) fn minutes<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let minutes: NonZeroU32 = whole(
        from,
        "a whole number of minutes, at least 1 (every limit is finite; 0 does not mean unlimited)",
    )?;
    Ok(Duration::from_secs(u64::from(minutes.get()) * 60))
}

/// Seconds; at least one.
pub(super) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let seconds: NonZeroU32 = whole(from, "a whole number of seconds, at least 1")?;
    Ok(Duration::from_secs(u64::from(seconds.get())))
}

/// How many work at the same time; 0 is allowed.
pub(super) fn workers<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    accepted(from, "a whole number from 0 to 1000", &|value| match value {
        ConfigValue::Integer(number) => u16::try_from(*number).ok().filter(|count| *count <= 1000),
        _ => None,
    })
}

/// Days; at least one.
pub(super) fn days<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let days: NonZeroU32 = whole(from, "a whole number of days, at least 1")?;
    Ok(Duration::from_secs(u64::from(days.get()) * 24 * 60 * 60))
}

/// A budget of money: above zero and finite.
pub(super) fn budget_dollars<'de, D: Deserializer<'de>>(from: D) -> Result<Usd, D::Error> {
    let expected = "a number of dollars above 0 and below 1000000000 (a budget is always finite)";
    number(from, expected, |dollars| {
        Usd::from_dollars(dollars).filter(|amount| *amount > Usd::ZERO)
    })
}

/// A limit of money that need not be there.
pub(super) fn limit_dollars<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Usd>, D::Error> {
    budget_dollars(from).map(Some)
}

/// A price, which may be 0.
pub(super) fn price<'de, D: Deserializer<'de>, T: From<Usd>>(from: D) -> Result<T, D::Error> {
    let expected = "a number of dollars, 0 or above and below 1000000000";
    number(from, expected, Usd::from_dollars)
}

/// A sampling temperature.
pub(super) fn temperature<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    number(from, "a number from 0 to 2", |value| {
        (0.0..=2.0).contains(&value).then_some(value)
    })
}

/// A size such as `8g`, in bytes.
pub(super) fn size<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    let expected = "a size above 0 with its unit, such as \"512m\" or \"8g\"";
    parsed(from, expected, quantity::bytes)
}

/// Processors, as a number or a text, in thousandths.
pub(super) fn cpus<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let expected = "a number of processors from 0.01 to 1000, such as \"4\" or 1.5";
    accepted(from, expected, &|value| match value {
        ConfigValue::Text(text) => quantity::cpu_millis(text),
        ConfigValue::Integer(number) => quantity::cpu_millis(&number.to_string()),
        ConfigValue::Float(number) => quantity::cpu_millis(&number.to_string()),
        _ => None,
    })
}

/// The address of an endpoint.
pub(super) fn base_url<'de, D: Deserializer<'de>, T: From<String>>(from: D) -> Result<T, D::Error> {
    let expected = "an address such as \"http://127.0.0.1:4000\", without a user name or password";
    parsed(from, expected, |text| {
        is_request_url(text).then(|| text.trim_end_matches('/').to_owned())
    })
}

/// The address of a request, as it is.
pub(super) fn request_url<'de, D: Deserializer<'de>, T: From<String>>(from: D) -> Result<T, D::Error> {
    let expected = "an address such as \"https://example.org/hook\", without a user name or password";
    parsed(from, expected, |text| {
        is_request_url(text).then(|| text.to_owned())
    })
}

/// Whether a text is the address of an HTTP request, without a user name or password.
pub(crate) fn is_request_url(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
    })
}

/// The name of an environment variable.
pub(super) fn variable<'de, D: Deserializer<'de>, T: From<String>>(from: D) -> Result<T, D::Error> {
    parsed(from, VARIABLE, variable_name)
}

/// Names of environment variables.
pub(super) fn variables<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    list(from, VARIABLE, variable_name)
}

const VARIABLE: &str = "the name of an environment variable: letters, digits and `_`";

fn variable_name(text: &str) -> Option<String> {
    is_variable_name(text).then(|| text.to_owned())
}

/// Whether a text can be the name of an environment variable.
pub(super) fn is_variable_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Rules of a network policy.
pub(super) fn rules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PolicyRule>, D::Error> {
    let expected = "the name of a host such as \"github.com\", \"*.github.com\" or \"db.example.org:5432\", \
                    without a scheme, perhaps with methods and a path as in \"GET docs.example.org/api/*\"";
    list(from, expected, |text| PolicyRule::parse(text).ok())
}

/// Names of presets.
pub(super) fn presets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Preset>, D::Error> {
    let names: Vec<String> = Preset::all().map(|preset| format!("`{preset}`")).collect();
    let expected = format!("one of {}", names.join(", "));
    list(from, &expected, Preset::parse)
}

/// Patterns of host names.
pub(super) fn host_patterns<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<HostPattern>, D::Error> {
    let expected = "the name of a host such as \"github.com\", \"*.github.com\" or \"registry.example.org:8443\", \
                    without a scheme, methods or a path";
    list(from, expected, |text| HostPattern::parse(text).ok())
}

/// The same, for a setting that may be absent.
pub(super) fn listed_hosts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<HostPattern>>, D::Error> {
    host_patterns(from).map(Some)
}

/// Ranges of addresses.
pub(super) fn address_ranges<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<AddressRange>, D::Error> {
    let expected =
        "an address or a range such as \"10.1.2.3\" or \"10.1.0.0/16\", at most a /8 (or a /16 of IPv6)";
    list(from, expected, |text| text.parse().ok())
}

/// An absolute path.
pub(super) fn absolute_path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let expected = "a path that begins with `/` and names something below it";
    parsed(from, expected, |text| {
        let path = PathBuf::from(text);
        (path.is_absolute() && path.file_name().is_some()).then_some(path)
    })
}

/// The first part of branch names.
pub(super) fn branch_prefix<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let expected = "letters, digits, `-`, `_` and `/` that git takes as the beginning of a branch name";
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    parsed(from, expected, |text| {
        let shaped = text
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with('-') && part.chars().all(allowed));
        shaped.then(|| text.to_owned())
    })
}

/// The address of a repository for checkpoints: an absolute path, SSH or HTTPS. A password does not belong in a file.
pub(super) fn state_remote<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let expected = "an absolute path, or an address such as \"git@host:owner/state.git\" or \"https://host/owner/state.git\" \
                    without a user name and a password (git gets them from its credential helper)";
    parsed(from, expected, |text| {
        let is_shaped = match text.split_once("://") {
            Some(("http" | "https", rest)) => {
                let host = rest.split('/').next().unwrap_or(rest);
                !host.is_empty() && !host.contains('@')
            }
            Some(("ssh", rest)) => rest.contains('/'),
            Some(_) => false,
            None => {
                text.starts_with('/')
                    || text
                        .split_once(':')
                        .is_some_and(|(host, path)| !host.is_empty() && !path.is_empty())
            }
        };
        // Git takes a leading dash for an option, and `ext::` runs a program.
        let is_safe = !text.starts_with('-') && !text.contains("::") && !text.contains(char::is_control);
        (is_shaped && is_safe).then(|| text.to_owned())
    })
}

/// The name of an image.
pub(super) fn image<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ImageReference>, D::Error> {
    let expected = "the name of an image in lower case, such as \"debian:trixie-slim\"";
    parsed(from, expected, |text| ImageReference::parse(text).ok())
}

/// A registry and a path in it.
pub(super) fn registry<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let expected = "a registry and perhaps a path in it, such as \"ghcr.io/team\", without a tag or a scheme";
    parsed(from, expected, |text| {
        let prefix = text.trim_end_matches('/');
        let named = ImageReference::parse(&format!("{prefix}/image")).ok()?;
        named.as_str().strip_suffix("/image").map(str::to_owned)
    })
}

/// The name of a flake's package.
pub(super) fn attribute<'de, D: Deserializer<'de>>(from: D) -> Result<Attribute, D::Error> {
    let expected = "the name of a package such as \"dockerImage\"";
    parsed(from, expected, |text| text.parse::<Attribute>().ok())
}

/// Paths inside the repository.
pub(super) fn inputs<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<InputPath>>, D::Error> {
    let expected = "a path inside the repository, from its root, such as \"nix\" or \"Cargo.lock\"";
    list(from, expected, |text| InputPath::parse(text).ok()).map(Some)
}

/// A whole number above 0.
fn whole<'de, D: Deserializer<'de>, T: TryFrom<NonZeroI64>>(from: D, expected: &str) -> Result<T, D::Error> {
    accepted(from, expected, &|value| match value {
        ConfigValue::Integer(number) => T::try_from(NonZeroI64::new(*number)?).ok(),
        _ => None,
    })
}

/// A number that `check` accepts.
fn number<'de, D: Deserializer<'de>, X, T: From<X>>(
    from: D,
    expected: &str,
    check: impl Fn(f64) -> Option<X>,
) -> Result<T, D::Error> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "every range checked here lies far below 2^53"
    )]
    let number = |value: &ConfigValue| match value {
        ConfigValue::Integer(number) => check(*number as f64),
        ConfigValue::Float(number) => check(*number),
        _ => None,
    };
    accepted(from, expected, &number).map(T::from)
}

/// A text that `parse` accepts.
fn parsed<'de, D: Deserializer<'de>, X, T: From<X>>(
    from: D,
    expected: &str,
    parse: impl Fn(&str) -> Option<X>,
) -> Result<T, D::Error> {
    accepted(from, expected, &|value| parse(value.as_text()?)).map(T::from)
}

/// A list of texts that `parse` accepts.
fn list<'de, D: Deserializer<'de>, T>(
    from: D,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, D::Error> {
    let accept: &Accept<'_, T> = &|value| parse(value.as_text()?);
    from.deserialize_seq(List(Expecting { expected, accept }))
}

fn accepted<'de, D: Deserializer<'de>, T>(
    from: D,
    expected: &str,
    accept: &Accept<'_, T>,
) -> Result<T, D::Error> {
    Expecting { expected, accept }.deserialize(from)
}

type Accept<'f, T> = dyn Fn(&ConfigValue) -> Option<T> + 'f;

/// Reads a value that `accept` accepts.
struct Expecting<'f, T> {
    expected: &'f str,
    accept: &'f Accept<'f, T>,
}

impl<T> Expecting<'_, T> {
    fn check<E: Error>(&self, value: &ConfigValue) -> Result<T, E> {
        (self.accept)(value).ok_or_else(|| E::invalid_value(Unexpected::Other("a value"), self))
    }
}

impl<'de, T> DeserializeSeed<'de> for Expecting<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        from.deserialize_any(self)
    }
}

impl<T> Visitor<'_> for Expecting<'_, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        self.check(&ConfigValue::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        self.check(&ConfigValue::Integer(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        self.check(&ConfigValue::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        self.check(&ConfigValue::Text(text.to_owned()))
    }
}

/// Reads a list of such values.
struct List<'f, T>(Expecting<'f, T>);

impl<'de, T> Visitor<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list such as [\"a\", \"b\"]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let Expecting { expected, accept } = self.0;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Expecting { expected, accept })? {
            list.push(item);
        }
        Ok(list)
    }
}
