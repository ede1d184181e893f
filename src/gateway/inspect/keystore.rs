//! Writes a Java key store (JKS), which every version of Java can read.

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const KIND: &str = "X.509";
/// The checksum depends on the password. Without a password Java does not check it.
const CHECKSUM: [u8; 20] = [0; 20];

/// A store of these trusted certificates, without a password.
pub(super) fn trust_store<'a>(certificates: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let entries: Vec<Vec<u8>> = certificates
        .into_iter()
        .enumerate()
        .map(|(index, certificate)| entry(index, certificate))
        .collect();
    let mut store = [MAGIC, VERSION, length(&entries)].map(u32::to_be_bytes).concat();
    store.extend(entries.concat());
    store.extend(CHECKSUM);
    store
}

/// An entry with its own alias. Java does not use the creation time.
fn entry(index: usize, certificate: &[u8]) -> Vec<u8> {
    let created: u64 = 0;
    [
        &TRUSTED_CERTIFICATE.to_be_bytes(),
        text(&format!("ca-{index}")).as_slice(),
        &created.to_be_bytes(),
        &text(KIND),
        &length(certificate).to_be_bytes(),
        certificate,
    ]
    .concat()
}

/// ASCII text in the format of Java: two bytes of length, then the text.
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
    fn a_store_has_the_format_of_java() {
        let expected = b"\xfe\xed\xfe\xed\0\0\0\x02\0\0\0\x01\
            \0\0\0\x02\0\x04ca-0\0\0\0\0\0\0\0\0\0\x05X.509\0\0\0\x03der";
        let store = trust_store([b"der".as_slice()]);
        assert_eq!(store.strip_suffix(&CHECKSUM), Some(expected.as_slice()));
    }
}
