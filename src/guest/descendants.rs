//! Finds the processes below one, and ends them.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use super::sys::{self, Signal};

/// How long to leave killed processes before looking again.
const PAUSE: Duration = Duration::from_millis(2);

/// The living descendants of a process, without the ones in `except` and what is below those.
///
/// A process whose parent ended is a child of the nearest ancestor that adopts orphans. So nobody gets out from below one
/// that does, whatever group, session or environment it chooses.
pub(crate) fn below(ancestor: i32, except: &[i32]) -> io::Result<Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let process = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some((process, parent)) = process.and_then(|process| Some((process, living_parent(process)?)))
        {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![ancestor];
    while let Some(parent) = open.pop() {
        let own = children.remove(&parent).unwrap_or_default();
        let own = own.into_iter().filter(|process| !except.contains(process));
        found.extend(own.clone());
        open.extend(own);
    }
    Ok(found)
}

/// Kills all descendants, also those that are started meanwhile, until there are none or `patience` is over.
/// `on_pass` is called after each pass: the dead are to be buried there.
pub(crate) fn kill(
    ancestor: i32,
    except: &[i32],
    patience: Duration,
    mut on_pass: impl FnMut(),
) -> io::Result<()> {
    let give_up = Instant::now() + patience;
    loop {
        let found = below(ancestor, except)?;
        for process in &found {
            sys::send(Signal::Kill, *process);
        }
        on_pass();
        if found.is_empty() || Instant::now() >= give_up {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

/// The parent of a process; `None` when it is gone or only waits to be buried.
fn living_parent(process: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything. State and parent come after it.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}
