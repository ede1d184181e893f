//! The guest: a static program of ralph's own inside a sandbox. It uses nothing but the standard library, has a single
//! thread, and is built by ralph's `build.rs`.

#![allow(dead_code, reason = "each end of a session uses one half of the messages")]

mod deed;
mod descendants;
mod firewall;
mod frame;
mod holder;
mod job;
mod keeper;
mod legacy;
mod line;
mod links;
mod message;
mod netlink;
mod nf_tables;
mod order;
mod outbox;
mod probe;
mod server;
mod sys;
mod sys_net;
mod version;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use self::line::Line;
use self::server::{Server, Turn};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["session"] => session(Line::standard),
        ["session", door] => session(|| Line::through(door)),
        ["hold", dir] => holder::hold(Path::new(dir)),
        ["probe", ref probes @ ..] => probe::carry_out(probes),
        _ => Err(io::Error::other(
            "usage: guest session [SOCKET] | hold DIRECTORY | probe PROBE...",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs commands for whoever is at the other end of the line, until it is closed.
fn session(line: impl FnOnce() -> io::Result<Line>) -> io::Result<()> {
    sys::shut_the_door()?;
    sys::keep_open_files_back()?;
    sys::adopt_orphans()?;
    sys::forget_children();
    let mut server = Server::open(line()?)?;
    loop {
        match server.turn()? {
            Turn::On => {}
            Turn::Over => return Ok(()),
            Turn::Keep(duty) => {
                // This is the keeper of one command, forked off: nothing of the server is its business.
                drop(server);
                return keeper::keep(duty);
            }
        }
    }
}
