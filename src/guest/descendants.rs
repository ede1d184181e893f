//! Finds and kills the descendants of a process.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use super::sys::{self, Signal};

/// The pause between two passes.
const PAUSE: Duration = Duration::from_millis(2);

/// The living descendants of a process, without those in `except` and their descendants.
///
/// If the parent of a process exits, its nearest subreaper ancestor becomes its parent. So no process can leave the
/// descendants of a subreaper, whatever process group, session or environment it chooses.
pub(crate) fn descendants(ancestor: i32, except: &[i32]) -> io::Result<Vec<i32>> {
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

/// Kills all descendants, also those started meanwhile, until none is left or the timeout has passed. Returns whether none is
/// left. `on_pass` is called after each pass, to reap the killed processes.
pub(crate) fn kill(
    ancestor: i32,
    except: &[i32],
    timeout: Duration,
    mut on_pass: impl FnMut(),
) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let found = descendants(ancestor, except)?;
        for process in &found {
            sys::send_signal(Signal::Kill, *process);
        }
        on_pass();
        if found.is_empty() || Instant::now() >= deadline {
            return Ok(found.is_empty());
        }
        thread::sleep(PAUSE);
    }
}

/// The parent of a process; `None` if the process is gone or a zombie.
fn living_parent(process: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may contain any bytes. State and parent come after it.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}
