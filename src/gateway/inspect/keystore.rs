//! The one format of trusted certificates that every Java reads (JKS), as far as it is needed.

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const KIND: &str = "X.509";
/// What stands for the checksum of a password. There is no password, and without one it is not looked at.
const CHECKSUM: [u8; 20] = [0; 20];

/// A store that trusts these certificates, without a password.
pub(super) fn trusting<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let entries: Vec<Vec<u8>> = certificates.into_iter().enumerate().map(entry).collect();
    let mut store = [MAGIC, VERSION, length(&entries)].map(u32::to_be_bytes).concat();
    store.extend(entries.concat());
    store.extend(CHECKSUM);
    store
}

/// Each is known by a name of its own, and by when it was added, which nobody asks.
fn entry((index, certificate): (usize, &[u8])) -> Vec<u8> {
    let added: u64 = 0;
    [
        &TRUSTED_CERTIFICATE.to_be_bytes(),
        text(&format!("ca-{index}")).as_slice(),
        &added.to_be_bytes(),
        &text(KIND),
        &length(certificate).to_be_bytes(),
        certificate,
    ]
    .concat()
}

/// Text as Java writes it: two bytes of length, and for ASCII the bytes.
fn text(ascii: &str) -> Vec<u8> {
    let length = u16::try_from(ascii.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), ascii.as_bytes()].concat()
}

fn length<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_what_java_writes() {
        let expected = b"\xfe\xed\xfe\xed\0\0\0\x02\0\0\0\x01\
            \0\0\0\x02\0\x04ca-0\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\x03der";
        let store = trusting([b"der".as_slice()]);
        assert_eq!(store.strip_suffix(&CHECKSUM), Some(expected.as_slice()));
    }
}
