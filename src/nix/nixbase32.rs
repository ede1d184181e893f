//! The base 32 that Nix writes its hashes in: an alphabet of its own, least significant bits last.

use thiserror::Error;

/// The digits. `e`, `o`, `t` and `u` are left out.
const ALPHABET: &[u8; 32] = b"0123456789abcdfghijklmnpqrsvwxyz";

/// Text that is no Nix base 32.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// A character that is no digit.
    #[error("`{0}` is not a digit of Nix base 32")]
    Digit(char),
    /// No whole number of bytes has this many digits, or the surplus bits are not zero.
    #[error("{0} digits of Nix base 32 are not a whole number of bytes")]
    Length(usize),
}

/// These bytes as text.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    let digit = |index: usize| {
        let (byte, shift) = (index * 5 / 8, index * 5 % 8);
        let low = u16::from(bytes[byte]);
        let high = bytes.get(byte + 1).copied().map_or(0, u16::from);
        let bits = ((high << 8) | low) >> shift;
        char::from(ALPHABET[usize::from(bits & 0x1f)])
    };
    (0..encoded_len(bytes.len())).rev().map(digit).collect()
}

/// The bytes that this text stands for.
pub fn decode(text: &str) -> Result<Vec<u8>, DecodeError> {
    let digits = text.chars().rev().map(value).collect::<Result<Vec<_>, _>>()?;
    let length = digits.len() * 5 / 8;
    if encoded_len(length) != digits.len() {
        return Err(DecodeError::Length(digits.len()));
    }
    let mut bytes = vec![0; length];
    for (index, digit) in digits.iter().enumerate() {
        let (byte, shift) = (index * 5 / 8, index * 5 % 8);
        let [low, high] = (u16::from(*digit) << shift).to_le_bytes();
        bytes[byte] |= low;
        match bytes.get_mut(byte + 1) {
            Some(next) => *next |= high,
            None if high == 0 => {}
            None => return Err(DecodeError::Length(digits.len())),
        }
    }
    Ok(bytes)
}

/// How many digits so many bytes have.
fn encoded_len(bytes: usize) -> usize {
    (bytes * 8).div_ceil(5)
}

fn value(digit: char) -> Result<u8, DecodeError> {
    ALPHABET
        .iter()
        .zip(0..)
        .find_map(|(known, value)| (char::from(*known) == digit).then_some(value))
        .ok_or(DecodeError::Digit(digit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(b"", "")]
    #[case(&[0x1f], "0z")]
    #[case(
        b"\x8a\x12\x32\x15\x22\xfd\x91\xef\xbd\x60\xeb\xb2\x48\x1a\xf8\x85\x80\xf6\x16\x00",
        "00bgd045z0d4icpbc2yyz4gx48ak44la"
    )]
    fn bytes_and_text_are_what_nix_says(#[case] bytes: &[u8], #[case] text: &str) {
        assert_eq!(encode(bytes), text);
        assert_eq!(decode(text).unwrap(), bytes);
    }

    #[rstest]
    #[case("e0", DecodeError::Digit('e'))]
    #[case("0A", DecodeError::Digit('A'))]
    #[case("0", DecodeError::Length(1))]
    #[case("zz", DecodeError::Length(2))]
    fn what_is_no_base_32_is_refused(#[case] text: &str, #[case] error: DecodeError) {
        assert_eq!(decode(text), Err(error));
    }

    proptest! {
        #[test]
        fn every_row_of_bytes_survives_the_way_there_and_back(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn what_decodes_has_one_spelling(text in "[0-9a-z]{0,60}") {
            if let Ok(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
