//! What a program in a sandbox should not be able to do, tried. Where it can be done, it is: this is for sandboxes that
//! were made to be attacked.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;

use super::firewall::{Family, Firewall};
use super::sys::{self, Namespace};
use super::sys_net::{self, OddSocket};

/// A firewall that lets everything pass.
const OPEN: &str = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n";

/// Does it, or says why it cannot.
pub(crate) fn dare(deed: &[&str]) -> io::Result<()> {
    match deed {
        ["open-firewall"] => Firewall::parse(OPEN)?.apply(Family::V4),
        ["mount", target] => sys::mount_nothing_at(&CString::new(*target)?),
        ["leave-network"] => sys::leave(Namespace::Network),
        ["leave-user"] => sys::leave(Namespace::User),
        ["raw-socket"] => sys_net::odd_socket(OddSocket::Raw).map(drop),
        ["packet-socket"] => sys_net::odd_socket(OddSocket::Packet).map(drop),
        ["sctp-socket"] => sys_net::odd_socket(OddSocket::Sctp).map(drop),
        ["other-interface"] => other_interface(),
        ["find", path] => fs::symlink_metadata(path).map(drop),
        // Opening is enough to show it, and changes nothing.
        ["overwrite", path] => File::options().write(true).open(path).map(drop),
        _ => Err(io::Error::other("no such deed")),
    }
}

fn other_interface() -> io::Result<()> {
    for entry in fs::read_dir("/sys/class/net")? {
        if entry?.file_name() != "lo" {
            return Ok(());
        }
    }
    Err(io::ErrorKind::NotFound.into())
}
