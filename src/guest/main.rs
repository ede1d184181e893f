//! The guest: ralph's static helper program inside a sandbox. It uses the standard library only, runs a session on a
//! single thread, and is compiled by ralph's `build.rs`.

#![allow(dead_code, reason = "each end of a session uses one half of the messages")]

#[cfg(feature = "escapes")]
mod attack;
mod connection;
mod descendants;
mod firewall;
mod frame;
mod holder;
mod holder_protocol;
mod ip_tables;
mod job;
mod keeper;
mod links;
mod message;
mod netlink;
mod nf_tables;
mod probe;
mod relay;
mod relay_protocol;
mod relayed_socket;
mod server;
mod sys;
mod sys_net;
mod write_queue;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use self::connection::HostConnection;
use self::server::SessionServer;

/// `build.rs` looks for it in a guest that was built elsewhere.
const VERSION_MARKER: &str = concat!("ralph-guest-version=", env!("GUEST_VERSION"), ".");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["session"] => session(None),
        ["session", socket] => session(Some(socket)),
        ["hold"] => holder::keep(),
        ["hold", dir] => holder::hold(Path::new(dir)),
        ["relay"] => relay::relay(),
        ["boot-id"] => holder::print_boot_id(),
        ["probe", ref probes @ ..] => probe::run_all(probes),
        ["version"] => {
            println!("{VERSION_MARKER}");
            Ok(())
        }
        _ => Err(io::Error::other(
            "usage: guest session [SOCKET] | hold [DIRECTORY] | relay | boot-id | probe PROBE... | version",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs commands for ralph until the connection is closed.
fn session(socket: Option<&str>) -> io::Result<()> {
    sys::deny_inspection()?;
    sys::close_inherited_files_on_exec()?;
    sys::become_subreaper()?;
    sys::ignore_child_exits();
    let server = SessionServer::open(HostConnection::open(socket)?)?;
    match server.run()? {
        Some(keeper) => keeper.run(),
        None => Ok(()),
    }
}
