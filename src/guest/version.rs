//! Which guest this is. Compiled into ralph and into the guest.

/// Differs whenever anything of the guest does: a hash of its source.
pub(crate) const VERSION: u64 = {
    let mut hash = OFFSET;
    let mut file = 0;
    while file < SOURCES.len() {
        hash = hashed(hash, SOURCES[file]);
        file += 1;
    }
    hash
};

/// Every file the guest is made of.
const SOURCES: &[&[u8]] = &[
    include_bytes!("deed.rs"),
    include_bytes!("descendants.rs"),
    include_bytes!("firewall.rs"),
    include_bytes!("frame.rs"),
    include_bytes!("holder.rs"),
    include_bytes!("job.rs"),
    include_bytes!("keeper.rs"),
    include_bytes!("legacy.rs"),
    include_bytes!("line.rs"),
    include_bytes!("links.rs"),
    include_bytes!("main.rs"),
    include_bytes!("message.rs"),
    include_bytes!("netlink.rs"),
    include_bytes!("nf_tables.rs"),
    include_bytes!("order.rs"),
    include_bytes!("outbox.rs"),
    include_bytes!("probe.rs"),
    include_bytes!("server.rs"),
    include_bytes!("sys.rs"),
    include_bytes!("sys_net.rs"),
    include_bytes!("version.rs"),
];

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// FNV-1a: nobody is kept from making two guests with one version, only from mixing up two.
const fn hashed(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_guest_counts() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guest");
        let files = std::fs::read_dir(folder).unwrap();
        // `mod.rs` is the one file that is not part of the program.
        assert_eq!(SOURCES.len(), files.count() - 1);
    }

    #[test]
    fn the_hash_is_the_one_others_call_fnv_1a() {
        assert_eq!(hashed(OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }
}
