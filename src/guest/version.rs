//! The version of the guest. Compiled into ralph and into the guest.

/// A hash of the guest's source.
pub(crate) const VERSION: u64 = {
    let mut hash = OFFSET;
    let mut file = 0;
    while file < SOURCES.len() {
        hash = fnv_1a(hash, SOURCES[file]);
        file += 1;
    }
    hash
};

/// All source files of the guest.
const SOURCES: &[&[u8]] = &[
    #[cfg(feature = "escapes")]
    include_bytes!("attack.rs"),
    include_bytes!("connection.rs"),
    include_bytes!("descendants.rs"),
    include_bytes!("firewall.rs"),
    include_bytes!("frame.rs"),
    include_bytes!("holder.rs"),
    include_bytes!("holder_protocol.rs"),
    include_bytes!("ip_tables.rs"),
    include_bytes!("job.rs"),
    include_bytes!("keeper.rs"),
    include_bytes!("links.rs"),
    include_bytes!("main.rs"),
    include_bytes!("message.rs"),
    include_bytes!("netlink.rs"),
    include_bytes!("nf_tables.rs"),
    include_bytes!("probe.rs"),
    include_bytes!("server.rs"),
    include_bytes!("sys.rs"),
    include_bytes!("sys_net.rs"),
    include_bytes!("version.rs"),
    include_bytes!("write_queue.rs"),
];

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// FNV-1a. Not a cryptographic hash: it detects different versions, it does not prevent forged ones.
const fn fnv_1a(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut index = 0;
    while index < bytes.len() {
        hash = (hash ^ bytes[index] as u64).wrapping_mul(PRIME);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_version_covers_every_source_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guest");
        let files = std::fs::read_dir(folder).unwrap().count();
        // `mod.rs` is not part of the guest, `attack.rs` only with its feature.
        let left_out = if cfg!(feature = "escapes") { 1 } else { 2 };
        assert_eq!(SOURCES.len(), files - left_out);
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv_1a(OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }
}
