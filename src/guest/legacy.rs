//! The firewall by way of what `iptables` had before `nf_tables`: a table that is read and replaced whole, as the kernel's
//! memory has it (`linux/netfilter/x_tables.h`, `linux/netfilter_ipv4/ip_tables.h`, `linux/netfilter_ipv6/ip6_tables.h`).
//!
//! A table is a row of entries, each with what it is about and what becomes of such packets. Every place begins at an entry
//! of its own and ends with one that is about all packets: its policy.

use std::fs;
use std::io;

use super::firewall::{Chain, Family, Fate, Firewall, HOOKS, Rule, Way, unknown};
use super::sys_net::{Inet, TableOption};

/// Options of the kernel's, the same for both families.
const REPLACE: i32 = 64;
const INFO: i32 = 64;
const ENTRIES: i32 = 65;

const TABLE: &str = "filter";
/// How many bytes the name of a table has, and how many places there are.
const NAME: usize = 32;
const PLACES: usize = 5;
/// What is told of a table: its name, its places, where each begins and ends, how many entries it has and how long they are.
const INFO_LENGTH: usize = NAME + 4 + 2 * 4 * PLACES + 8;
/// What comes before entries that are read: the name, their length, and nothing.
const ENTRIES_HEAD: usize = NAME + 8;
/// How many bytes the name of an interface has.
const INTERFACE: usize = 16;
/// What becomes of packets: its length, the name of who decides, and a verdict or the name of an error.
const TARGET_NAME: usize = 30;
const VERDICT: usize = 2 + TARGET_NAME;
const STANDARD: usize = 40;
const ERROR: usize = 64;
/// The kernel's verdicts, as a table has them.
const DROP: i32 = -1;
const ACCEPT: i32 = -2;

/// Puts it in force, all of it or nothing.
pub(super) fn apply(firewall: &Firewall, family: Family) -> io::Result<()> {
    let shape = Shape::of(family);
    let option = TableOption::of(shape.inet)?;
    let counted = Info::read(&option)?.count;
    let (info, entries) = shape.table(firewall)?;
    option.replace(REPLACE, [&info.head(), &entries], counted)
}

/// What is in force.
pub(super) fn read(family: Family) -> io::Result<Firewall> {
    let shape = Shape::of(family);
    let option = TableOption::of(shape.inet)?;
    let info = Info::read(&option)?;
    let mut bytes = named(TABLE);
    bytes.extend(info.length.to_ne_bytes());
    bytes.resize(ENTRIES_HEAD + info.length as usize, 0);
    option.get(ENTRIES, &mut bytes)?;
    let chain = |(number, name): &(u32, &str)| {
        let (begin, end) = (info.begins[*number as usize], info.ends[*number as usize]);
        shape.chain(name, &bytes[ENTRIES_HEAD..], begin..end)
    };
    let chains: Option<Vec<Chain>> = HOOKS.iter().map(chain).collect();
    let mut chains = chains.ok_or(io::ErrorKind::InvalidData)?;
    chains.extend(other_tables(&shape)?);
    Ok(Firewall(chains))
}

/// A table of another name is none of ours, and could lead packets elsewhere.
fn other_tables(shape: &Shape) -> io::Result<Vec<Chain>> {
    let names = fs::read_to_string(shape.tables)?;
    let others = names.lines().filter(|name| *name != TABLE);
    Ok(others
        .map(|name| Chain {
            name: format!("{name}/"),
            policy: Fate::Accept,
            rules: vec![Rule::Strange],
        })
        .collect())
}

/// What is told of a table before its entries.
#[derive(Default)]
struct Info {
    begins: [u32; PLACES],
    ends: [u32; PLACES],
    count: u32,
    length: u32,
}

impl Info {
    fn read(option: &TableOption) -> io::Result<Self> {
        let mut bytes = named(TABLE);
        bytes.resize(INFO_LENGTH, 0);
        option.get(INFO, &mut bytes)?;
        let number = |place: usize| number_at(&bytes, NAME + 4 * place).unwrap_or_default();
        Ok(Self {
            begins: std::array::from_fn(|place| number(1 + place)),
            ends: std::array::from_fn(|place| number(1 + PLACES + place)),
            count: number(1 + 2 * PLACES),
            length: number(2 + 2 * PLACES),
        })
    }

    /// What comes before entries that are put in force.
    fn head(&self) -> Vec<u8> {
        let places = HOOKS
            .iter()
            .fold(0, |places, (number, _)| places | 1_u32 << number);
        let numbers = [places, self.count, self.length]
            .into_iter()
            .chain(self.begins)
            .chain(self.ends);
        let mut head = named(TABLE);
        head.extend(numbers.flat_map(u32::to_ne_bytes));
        head
    }
}

/// What differs between the families.
struct Shape {
    inet: Inet,
    /// Where the addresses of an entry end and its interfaces begin: two names, and two masks over them.
    interfaces: usize,
    /// Where it says how long it is, as far as its target and as a whole.
    lengths: usize,
    /// Where its target begins.
    target: usize,
    /// Where the kernel names its tables.
    tables: &'static str,
}

impl Shape {
    const fn of(family: Family) -> Self {
        match family {
            Family::V4 => Self {
                inet: Inet::V4,
                interfaces: 16,
                lengths: 88,
                target: 112,
                tables: "/proc/net/ip_tables_names",
            },
            Family::V6 => Self {
                inet: Inet::V6,
                interfaces: 64,
                lengths: 140,
                target: 168,
                tables: "/proc/net/ip6_tables_names",
            },
        }
    }

    /// A table that does what a firewall says.
    fn table(&self, firewall: &Firewall) -> io::Result<(Info, Vec<u8>)> {
        let (mut info, mut entries) = (Info::default(), Vec::new());
        let mut count = 1;
        for (number, name) in HOOKS {
            let chain = firewall.0.iter().find(|chain| chain.name == name);
            let chain = chain.ok_or_else(|| unknown(name))?;
            info.begins[number as usize] = length_of(&entries)?;
            for rule in &chain.rules {
                let Rule::Accept(way, interface) = rule else {
                    return Err(unknown(name));
                };
                entries.extend(self.entry(Some((*way, interface)), &verdict(Fate::Accept)));
            }
            info.ends[number as usize] = length_of(&entries)?;
            entries.extend(self.entry(None, &verdict(chain.policy)));
            count += 1 + chain.rules.len();
        }
        // The last entry belongs to no place, and stops whoever comes there by mistake.
        entries.extend(self.entry(None, &target("ERROR", ERROR, b"ERROR")));
        info.count = u32::try_from(count).map_err(io::Error::other)?;
        info.length = length_of(&entries)?;
        Ok((info, entries))
    }

    /// An entry about packets of one interface, or about all.
    fn entry(&self, about: Option<(Way, &str)>, target: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; self.target];
        if let Some((way, interface)) = about {
            let name = self.interfaces + place_of(way);
            // With the zero at its end: without it, it would be the beginning of a name.
            let length = (interface.len() + 1).min(INTERFACE);
            entry[name..name + interface.len().min(INTERFACE - 1)]
                .copy_from_slice(&interface.as_bytes()[..length - 1]);
            let mask = name + 2 * INTERFACE;
            entry[mask..mask + length].fill(u8::MAX);
        }
        let whole = self.target + target.len();
        let lengths =
            [self.target, whole].map(|length| u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
        entry[self.lengths..self.lengths + 4].copy_from_slice(&lengths.concat());
        [&entry, target].concat()
    }

    /// The chain whose entries are in this range and whose policy comes right behind it.
    fn chain(&self, name: &str, bytes: &[u8], range: std::ops::Range<u32>) -> Option<Chain> {
        let (mut at, end) = (range.start as usize, range.end as usize);
        let mut rules = Vec::new();
        while at < end {
            let entry = self.entry_at(bytes, at)?;
            rules.push(self.rule(&entry).unwrap_or(Rule::Strange));
            at += entry.len();
        }
        let policy = self.entry_at(bytes, end)?;
        let drops = policy == self.entry(None, &verdict(Fate::Drop));
        Some(Chain {
            name: name.to_owned(),
            policy: if drops { Fate::Drop } else { Fate::Accept },
            rules,
        })
    }

    /// A rule of ours is the same, byte for byte, as the entry that we would make of it.
    fn rule(&self, entry: &[u8]) -> Option<Rule> {
        let accept = verdict(Fate::Accept);
        [Way::In, Way::Out].into_iter().find_map(|way| {
            let name = self.interfaces + place_of(way);
            let name = entry
                .get(name..name + INTERFACE)?
                .split(|byte| *byte == 0)
                .next()?;
            let interface = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?;
            (entry == self.entry(Some((way, interface)), &accept))
                .then(|| Rule::Accept(way, interface.to_owned()))
        })
    }

    /// The entry at this place, without what the kernel keeps in it: the marks of its walk, and what it counted.
    fn entry_at(&self, bytes: &[u8], at: usize) -> Option<Vec<u8>> {
        let rest = bytes.get(at..)?;
        let length = rest.get(self.lengths + 2..self.lengths + 4)?;
        let length = usize::from(u16::from_ne_bytes(length.try_into().ok()?));
        let mut entry = rest.get(..length.max(self.target))?.to_vec();
        entry[self.lengths + 4..self.target].fill(0);
        Some(entry)
    }
}

/// Where the name of the interface is, behind the addresses.
fn place_of(way: Way) -> usize {
    match way {
        Way::In => 0,
        Way::Out => INTERFACE,
    }
}

fn verdict(fate: Fate) -> Vec<u8> {
    let verdict = match fate {
        Fate::Drop => DROP,
        Fate::Accept => ACCEPT,
    };
    target("", STANDARD, &verdict.to_ne_bytes())
}

fn target(name: &str, length: usize, says: &[u8]) -> Vec<u8> {
    let mut target = vec![0; length];
    target[..2].copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    target[2..2 + name.len()].copy_from_slice(name.as_bytes());
    target[VERDICT..VERDICT + says.len()].copy_from_slice(says);
    target
}

fn named(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(NAME, 0);
    bytes
}

fn length_of(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}
