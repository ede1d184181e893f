//! Parses values into the types of settings. Each function describes what it expects; the caller adds the position of the
//! value.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Unexpected, Visitor};

use super::quantity;
use crate::id::RepositoryName;
use crate::image::ImageReference;
use crate::network::{AddressRange, HostPattern, PolicyRule, Preset};
use crate::nix::{Attribute, InputPath};
use crate::usage::Usd;

/// A text that is not empty.
pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(Parsed {
        expected: "a text that is not empty",
        parse: |text| (!text.trim().is_empty()).then(|| text.to_owned()),
    })
}

/// [`text`], for a setting that may be absent.
pub(super) fn optional_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    text(from).map(Some)
}

/// A repository on GitHub, which may be absent.
pub(super) fn optional_repository<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<RepositoryName>, D::Error> {
    from.deserialize_str(Parsed {
        expected: "a repository on GitHub such as \"rust-lang/cargo\"",
        parse: |text| RepositoryName::parse(text).ok(),
    })
    .map(Some)
}

/// `true` or `false`.
pub(super) fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    struct Flag;
    impl Visitor<'_> for Flag {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("`true` or `false`")
        }

        fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
            Ok(value)
        }
    }
    from.deserialize_bool(Flag)
}

/// A count of at least one.
pub(super) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<NonZeroU32, D::Error> {
    whole(from, "a whole number of at least 1")
}

/// [`count`], for a setting that may be absent.
pub(super) fn optional_count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU32>, D::Error> {
    count(from).map(Some)
}

/// A budget that is a count.
pub(super) fn budget_count<'de, D: Deserializer<'de>>(from: D) -> Result<NonZeroU32, D::Error> {
    whole(
        from,
        "a whole number of at least 1 (a budget is always finite; 0 does not mean unlimited)",
    )
}

/// A budget of tokens, which may be absent.
pub(super) fn budget_tokens<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    from.deserialize_i64(Whole {
        expected: "a whole number of at least 1 (a budget is always finite; leave it out to count by cost alone)",
        check: |number| u64::try_from(number).ok().and_then(NonZeroU64::new),
    })
    .map(Some)
}

/// Minutes; at least one.
pub(super) fn minutes<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let minutes = whole(
        from,
        "a whole number of minutes, at least 1 (every limit is finite; 0 does not mean unlimited)",
    )?;
    Ok(Duration::from_secs(u64::from(minutes.get()) * 60))
}

/// Seconds; at least one.
pub(super) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let seconds = whole(from, "a whole number of seconds, at least 1")?;
    Ok(Duration::from_secs(u64::from(seconds.get())))
}

/// A budget of money: above zero and finite.
pub(super) fn budget_dollars<'de, D: Deserializer<'de>>(from: D) -> Result<Usd, D::Error> {
    from.deserialize_f64(Number {
        expected: "a number of dollars above 0 and below 1000000000 (a budget is always finite)",
        check: |dollars| Usd::from_dollars(dollars).filter(|amount| *amount > Usd::ZERO),
    })
}

/// A price, which may be 0.
pub(super) fn price<'de, D: Deserializer<'de>>(from: D) -> Result<Usd, D::Error> {
    from.deserialize_f64(Number {
        expected: "a number of dollars, 0 or above and below 1000000000",
        check: Usd::from_dollars,
    })
}

/// [`price`], for a setting that may be absent.
pub(super) fn optional_price<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Usd>, D::Error> {
    price(from).map(Some)
}

/// A sampling temperature.
pub(super) fn temperature<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    from.deserialize_f64(Number {
        expected: "a number from 0 to 2",
        check: |value| (0.0..=2.0).contains(&value).then_some(value),
    })
    .map(Some)
}

/// A size such as `8g`, in bytes.
pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_str(Parsed {
        expected: "a size above 0 with its unit, such as \"512m\" or \"8g\"",
        parse: quantity::bytes,
    })
}

/// [`size`], for a setting that may be absent.
pub(super) fn optional_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    size(from).map(Some)
}

/// Processors, as a number or a text, in thousandths.
pub(super) fn cpus<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    const EXPECTED: &str = "a number of processors from 0.01 to 1000, such as \"4\" or 1.5";
    struct Cpus;
    impl Visitor<'_> for Cpus {
        type Value = u32;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(EXPECTED)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<u32, E> {
            quantity::cpu_millis(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<u32, E> {
            self.visit_str(&value.to_string())
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<u32, E> {
            self.visit_str(&value.to_string())
        }
    }
    from.deserialize_any(Cpus)
}

/// The address of an endpoint.
pub(super) fn base_url<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(Parsed {
        expected: "an address such as \"http://127.0.0.1:4000\", without a user name or password",
        parse: |text| {
            let url = reqwest::Url::parse(text).ok()?;
            let usable = matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none();
            usable.then(|| text.trim_end_matches('/').to_owned())
        },
    })
}

/// An address of a model endpoint, which may be absent.
pub(super) fn optional_base_url<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    base_url(from).map(Some)
}

/// The name of an environment variable, which may be absent.
pub(super) fn optional_variable<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    variable(from).map(Some)
}

/// The name of an environment variable.
pub(super) fn variable<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(VARIABLE)
}

/// Names of environment variables.
pub(super) fn variables<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(ParsedList(VARIABLE))
}

/// Rules of a network policy.
pub(super) fn rules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PolicyRule>, D::Error> {
    from.deserialize_seq(ParsedList(Parsed {
        expected: "the name of a host such as \"github.com\", \"*.github.com\" or \"db.example.org:5432\", \
                   without a scheme, perhaps with methods and a path as in \"GET docs.example.org/api/*\"",
        parse: |text| PolicyRule::parse(text).ok(),
    }))
}

/// Names of presets.
pub(super) fn presets<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Preset>, D::Error> {
    from.deserialize_seq(ParsedList(Parsed {
        expected: "one of `anthropic`, `openai`, `github`, `packages:npm`, `packages:pypi`, `packages:cargo`, \
                   `packages:apt`, `packages:nix`, `packages:go`",
        parse: |text| text.parse().ok(),
    }))
}

/// Patterns of host names.
pub(super) fn host_patterns<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<HostPattern>, D::Error> {
    from.deserialize_seq(ParsedList(Parsed {
        expected: "the name of a host such as \"github.com\", \"*.github.com\" or \"registry.example.org:8443\", \
                   without a scheme, methods or a path",
        parse: |text| HostPattern::parse(text).ok(),
    }))
}

/// Ranges of addresses.
pub(super) fn address_ranges<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<AddressRange>, D::Error> {
    from.deserialize_seq(ParsedList(Parsed {
        expected: "an address or a range such as \"10.1.2.3\" or \"10.1.0.0/16\", at most a /8 (or a /16 of IPv6)",
        parse: |text| text.parse().ok(),
    }))
}

/// An absolute path.
pub(super) fn absolute_path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    from.deserialize_str(Parsed {
        expected: "a path that begins with `/` and names something below it",
        parse: |text| {
            let path = PathBuf::from(text);
            (path.is_absolute() && path.file_name().is_some()).then_some(path)
        },
    })
}

/// The first part of branch names.
pub(super) fn branch_prefix<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    from.deserialize_str(Parsed {
        expected: "letters, digits, `-`, `_` and `/` that git takes as the beginning of a branch name",
        parse: |text| {
            let shaped = text.split('/').all(|part| {
                !part.is_empty()
                    && !part.starts_with('-')
                    && part
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            });
            shaped.then(|| text.to_owned())
        },
    })
}

/// Days; at least one.
pub(super) fn days<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let days = whole(from, "a whole number of days, at least 1")?;
    Ok(Duration::from_secs(u64::from(days.get()) * 24 * 60 * 60))
}

/// The name of an image, which may be absent.
pub(super) fn optional_image<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ImageReference>, D::Error> {
    from.deserialize_str(Parsed {
        expected: "the name of an image such as \"debian:bookworm-slim\"",
        parse: |text| ImageReference::parse(text).ok(),
    })
    .map(Some)
}

/// A registry and a path in it, which may be absent.
pub(super) fn optional_registry<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    from.deserialize_str(Parsed {
        expected: "a registry and perhaps a path in it, such as \"ghcr.io/team\", without a tag or a scheme",
        parse: |text| {
            let prefix = text.trim_end_matches('/');
            let named = ImageReference::parse(&format!("{prefix}/image")).ok()?;
            named.as_str().strip_suffix("/image").map(str::to_owned)
        },
    })
    .map(Some)
}

/// The name of a flake's package.
pub(super) fn attribute<'de, D: Deserializer<'de>>(from: D) -> Result<Attribute, D::Error> {
    from.deserialize_str(Parsed {
        expected: "the name of a package such as \"dockerImage\"",
        parse: |text| text.parse().ok(),
    })
}

/// Paths inside the repository, which may be absent.
pub(super) fn optional_inputs<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<InputPath>>, D::Error> {
    from.deserialize_seq(ParsedList(Parsed {
        expected: "a path inside the repository, from its root, such as \"nix\" or \"Cargo.lock\"",
        parse: |text| InputPath::parse(text).ok(),
    }))
    .map(Some)
}

/// Whether a text can be the name of an environment variable.
pub(super) fn is_variable_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

const VARIABLE: Parsed<String> = Parsed {
    expected: "the name of an environment variable: letters, digits and `_`",
    parse: |text| is_variable_name(text).then(|| text.to_owned()),
};

fn whole<'de, D: Deserializer<'de>>(from: D, expected: &'static str) -> Result<NonZeroU32, D::Error> {
    from.deserialize_i64(Whole {
        expected,
        check: |number| u32::try_from(number).ok().and_then(NonZeroU32::new),
    })
}

/// Accepts a whole number for which `check` returns a value.
struct Whole<T> {
    expected: &'static str,
    check: fn(i64) -> Option<T>,
}

impl<T> Visitor<'_> for Whole<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        (self.check)(value).ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }
}

/// Accepts a number for which `check` returns a value.
struct Number<T> {
    expected: &'static str,
    check: fn(f64) -> Option<T>,
}

impl<T> Visitor<'_> for Number<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "every range checked here lies far below 2^53"
    )]
    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        (self.check)(value).ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }
}

/// Accepts a text that `parse` accepts.
struct Parsed<T> {
    expected: &'static str,
    parse: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Parsed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de, T> DeserializeSeed<'de> for Parsed<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        from.deserialize_str(self)
    }
}

/// Accepts a list of such texts.
struct ParsedList<T>(Parsed<T>);

impl<'de, T> Visitor<'de> for ParsedList<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let Parsed { expected, parse } = self.0;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Parsed { expected, parse })? {
            list.push(item);
        }
        Ok(list)
    }
}
