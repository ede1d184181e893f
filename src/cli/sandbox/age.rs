//! The age from which something is removed, as an option.

use std::str::FromStr;
use std::time::Duration;

/// A length of time: a number and `s`, `m`, `h`, `d` or `w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgeArg(pub(super) Duration);

impl FromStr for AgeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an age: write a number and s, m, h, d or w, as in 7d");
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 60 * 60,
            "d" => 24 * 60 * 60,
            "w" => 7 * 24 * 60 * 60,
            _ => return Err(wrong()),
        };
        let count: u64 = number.parse().map_err(|_| wrong())?;
        let seconds = count.checked_mul(seconds).ok_or_else(wrong)?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0s", Some(0))]
    #[case("90m", Some(5400))]
    #[case("7d", Some(604_800))]
    #[case("2w", Some(1_209_600))]
    #[case("7", None)]
    #[case("d", None)]
    #[case("-1d", None)]
    #[case("1y", None)]
    #[case("99999999999999999999d", None)]
    fn an_age_is_a_number_and_a_unit(#[case] text: &str, #[case] seconds: Option<u64>) {
        let age: Option<AgeArg> = text.parse().ok();
        assert_eq!(age.map(|age| age.0.as_secs()), seconds);
    }
}
