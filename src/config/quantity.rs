//! Parses sizes and numbers of processors.

/// The bytes of a size such as `8g` or `512m`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u32 = match text.strip_prefix(digits)? {
        "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let millis = u128::from(thousandths(digits)?);
    let bytes = u64::try_from((millis << unit) / 1000).ok()?;
    (1..=1 << 60).contains(&bytes).then_some(bytes)
}

/// The thousandths of a number of processors such as `1.5`.
pub(super) fn cpu_millis(text: &str) -> Option<u32> {
    let millis = u32::try_from(thousandths(text)?).ok()?;
    (10..=1_000_000).contains(&millis).then_some(millis)
}

/// A decimal with at most three places, times a thousand.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("8g", Some(8 << 30))]
    #[case("512m", Some(512 << 20))]
    #[case("1.5GiB", Some(3 << 29))]
    #[case("64kb", Some(64 << 10))]
    #[case("8", None)]
    #[case("0g", None)]
    #[case("-1g", None)]
    #[case("8x", None)]
    #[case("g", None)]
    #[case("inf", None)]
    #[case("99999999999999999999t", None)]
    fn a_size_is_a_number_and_a_unit(#[case] text: &str, #[case] expected: Option<u64>) {
        assert_eq!(bytes(text), expected);
    }

    #[rstest::rstest]
    #[case("4", Some(4000))]
    #[case("1.5", Some(1500))]
    #[case("0", None)]
    #[case("-2", None)]
    #[case("1e3", None)]
    #[case("four", None)]
    #[case("100000", None)]
    fn processors_are_counted_in_thousandths(#[case] text: &str, #[case] expected: Option<u32>) {
        assert_eq!(cpu_millis(text), expected);
    }
}
