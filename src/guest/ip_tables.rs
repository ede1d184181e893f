//! The firewall through the `ip_tables` interface that preceded `nf_tables`. The kernel reads and replaces a table as a
//! whole, in its memory layout (`linux/netfilter/x_tables.h`, `linux/netfilter_ipv4/ip_tables.h`,
//! `linux/netfilter_ipv6/ip6_tables.h`).
//!
//! A table is a sequence of entries, each a match and a target. A hook has a range of entries; the entry after that
//! range matches all packets and is the hook's policy.

use std::fs;
use std::io;

use super::firewall::{Direction, HOOKS, KernelChain, KernelFirewall, LOOPBACK, PacketAction};
use super::sys_net::{IpFamily, TableSocket};

/// The socket options `IPT_SO_SET_REPLACE`, `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`, the same for both families.
const SET_REPLACE: i32 = 64;
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;

const TABLE: &str = "filter";
const TABLE_NAME_LENGTH: usize = 32;
const HOOK_COUNT: usize = 5;
/// `struct ipt_getinfo`: name, hooks, begin and end of each hook, number and length of the entries.
const INFO_LENGTH: usize = TABLE_NAME_LENGTH + 4 + 2 * 4 * HOOK_COUNT + 8;
/// `struct ipt_get_entries` without the entries: name, length, padding.
const ENTRIES_OFFSET: usize = TABLE_NAME_LENGTH + 8;
/// `IFNAMSIZ`.
const INTERFACE_NAME_LENGTH: usize = 16;
/// A target (`struct xt_entry_target`): its length, its name, and a verdict or the name of an error.
const TARGET_NAME_LENGTH: usize = 30;
const VERDICT_OFFSET: usize = 2 + TARGET_NAME_LENGTH;
const STANDARD_TARGET_LENGTH: usize = 40;
const ERROR_TARGET_LENGTH: usize = 64;

/// Replaces the table atomically.
pub(super) fn apply(policy: PacketAction, family: IpFamily) -> io::Result<()> {
    let layout = EntryLayout::new(family);
    let socket = TableSocket::open(family)?;
    let old_count = TableInfo::read(&socket)?.count;
    let (info, entries) = layout.table(policy)?;
    socket.replace(SET_REPLACE, &info.header(), &entries, old_count)
}

/// Reads the table from the kernel.
pub(super) fn read(family: IpFamily) -> io::Result<KernelFirewall> {
    let layout = EntryLayout::new(family);
    let socket = TableSocket::open(family)?;
    let info = TableInfo::read(&socket)?;
    let mut bytes = padded_name(TABLE);
    bytes.extend(info.length.to_ne_bytes());
    bytes.resize(ENTRIES_OFFSET + info.length as usize, 0);
    socket.get(GET_ENTRIES, &mut bytes)?;
    let chains = HOOKS.iter().map(|hook| {
        let range = info.begins[hook.number as usize]..info.ends[hook.number as usize];
        layout.chain(hook.chain, &bytes[ENTRIES_OFFSET..], range)
    });
    let chains: Option<Vec<KernelChain>> = chains.collect();
    let mut chains = chains.ok_or(io::ErrorKind::InvalidData)?;
    // Tables that ralph did not make, which could redirect packets, each as a chain with an unknown rule.
    let tables = fs::read_to_string(layout.table_names)?;
    let others = tables.lines().filter(|name| *name != TABLE);
    chains.extend(others.map(|name| KernelChain {
        name: format!("{name}/"),
        policy: PacketAction::Accept,
        rules: vec![None],
    }));
    Ok(KernelFirewall(chains))
}

/// Where the hooks of a table begin and end, and its size.
#[derive(Default)]
struct TableInfo {
    begins: [u32; HOOK_COUNT],
    ends: [u32; HOOK_COUNT],
    count: u32,
    length: u32,
}

impl TableInfo {
    fn read(socket: &TableSocket) -> io::Result<Self> {
        let mut bytes = padded_name(TABLE);
        bytes.resize(INFO_LENGTH, 0);
        socket.get(GET_INFO, &mut bytes)?;
        let (numbers, _) = bytes[TABLE_NAME_LENGTH..].as_chunks();
        let number = |index: usize| u32::from_ne_bytes(numbers[index]);
        Ok(Self {
            begins: std::array::from_fn(|hook| number(1 + hook)),
            ends: std::array::from_fn(|hook| number(1 + HOOK_COUNT + hook)),
            count: number(1 + 2 * HOOK_COUNT),
            length: number(2 + 2 * HOOK_COUNT),
        })
    }

    /// What precedes the entries of a table that replaces another (`struct ipt_replace`).
    fn header(&self) -> Vec<u8> {
        let hooks = HOOKS.iter().fold(0, |hooks, hook| hooks | 1_u32 << hook.number);
        let numbers = [hooks, self.count, self.length]
            .into_iter()
            .chain(self.begins)
            .chain(self.ends);
        let mut header = padded_name(TABLE);
        header.extend(numbers.flat_map(u32::to_ne_bytes));
        header
    }
}

/// Offsets in an entry, which differ between the IP families.
struct EntryLayout {
    /// The interfaces, after the addresses: two names, and two masks over them.
    interfaces: usize,
    /// The length up to the target, and the length of the whole entry.
    lengths: usize,
    target: usize,
    /// The file in which the kernel lists its tables.
    table_names: &'static str,
}

impl EntryLayout {
    const fn new(family: IpFamily) -> Self {
        match family {
            IpFamily::V4 => Self {
                interfaces: 16,
                lengths: 88,
                target: 112,
                table_names: "/proc/net/ip_tables_names",
            },
            IpFamily::V6 => Self {
                interfaces: 64,
                lengths: 140,
                target: 168,
                table_names: "/proc/net/ip6_tables_names",
            },
        }
    }

    /// A table with this policy in which loopback packets are accepted.
    fn table(&self, policy: PacketAction) -> io::Result<(TableInfo, Vec<u8>)> {
        let (mut info, mut entries) = (TableInfo::default(), Vec::new());
        let mut count = 1;
        for hook in HOOKS {
            info.begins[hook.number as usize] = length_of(&entries)?;
            if let Some(direction) = hook.accepts {
                entries.extend(self.entry(Some(direction), &verdict(PacketAction::Accept)));
                count += 1;
            }
            info.ends[hook.number as usize] = length_of(&entries)?;
            entries.extend(self.entry(None, &verdict(policy)));
            count += 1;
        }
        // The kernel requires an error target as the last entry.
        entries.extend(self.entry(None, &target("ERROR", ERROR_TARGET_LENGTH, b"ERROR")));
        info.count = count;
        info.length = length_of(&entries)?;
        Ok((info, entries))
    }

    /// An entry that matches the loopback packets of one direction, or all packets.
    fn entry(&self, matched: Option<Direction>, target: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; self.target];
        if let Some(direction) = matched {
            let name = match direction {
                Direction::In => self.interfaces,
                Direction::Out => self.interfaces + INTERFACE_NAME_LENGTH,
            };
            entry[name..name + LOOPBACK.len()].copy_from_slice(LOOPBACK.as_bytes());
            // The mask covers the terminating zero; without it, the name would be a prefix.
            let mask = name + 2 * INTERFACE_NAME_LENGTH;
            entry[mask..=mask + LOOPBACK.len()].fill(u8::MAX);
        }
        let whole = self.target + target.len();
        let lengths =
            [self.target, whole].map(|length| u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
        entry[self.lengths..self.lengths + 4].copy_from_slice(&lengths.concat());
        [&entry, target].concat()
    }

    /// The chain with the entries in this range and the policy after it.
    fn chain(&self, name: &str, bytes: &[u8], range: std::ops::Range<u32>) -> Option<KernelChain> {
        let (mut offset, end) = (range.start as usize, range.end as usize);
        let mut rules = Vec::new();
        while offset < end {
            let entry = self.entry_at(bytes, offset)?;
            // A rule of ralph's is byte for byte the entry that ralph would make for it.
            let accept = verdict(PacketAction::Accept);
            let mut both = Direction::BOTH.into_iter();
            rules.push(both.find(|direction| entry == self.entry(Some(*direction), &accept)));
            offset += entry.len();
        }
        let policy = self.entry_at(bytes, end)?;
        let drops = policy == self.entry(None, &verdict(PacketAction::Drop));
        Some(KernelChain {
            name: name.to_owned(),
            policy: if drops {
                PacketAction::Drop
            } else {
                PacketAction::Accept
            },
            rules,
        })
    }

    /// The entry at this offset, without the kernel's own fields: marks of its traversal, and counters.
    fn entry_at(&self, bytes: &[u8], offset: usize) -> Option<Vec<u8>> {
        let rest = bytes.get(offset..)?;
        let length = rest.get(self.lengths + 2..self.lengths + 4)?;
        let length = usize::from(u16::from_ne_bytes(length.try_into().ok()?));
        let mut entry = rest.get(..length.max(self.target))?.to_vec();
        entry[self.lengths + 4..self.target].fill(0);
        Some(entry)
    }
}

/// A standard target, whose verdict is `-NF_DROP - 1` or `-NF_ACCEPT - 1`.
fn verdict(action: PacketAction) -> Vec<u8> {
    let verdict = -(action as i32) - 1;
    target("", STANDARD_TARGET_LENGTH, &verdict.to_ne_bytes())
}

fn target(name: &str, length: usize, data: &[u8]) -> Vec<u8> {
    let mut target = vec![0; length];
    target[..2].copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    target[2..2 + name.len()].copy_from_slice(name.as_bytes());
    target[VERDICT_OFFSET..VERDICT_OFFSET + data.len()].copy_from_slice(data);
    target
}

fn padded_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(TABLE_NAME_LENGTH, 0);
    bytes
}

fn length_of(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}
