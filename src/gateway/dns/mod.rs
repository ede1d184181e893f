//! A DNS server that answers for allowed names only, with synthetic addresses, and asks no other server.

mod message;
mod server;

pub(super) use message::{DnsLookup, respond};
pub(super) use server::{serve_tcp, serve_udp};
