//! When a process started and whether it has ended: from `/proc` on Linux, from `ps` elsewhere.

/// What the system knows about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessInfo {
    /// When it started: in clock ticks since boot on Linux, in seconds since 1970 elsewhere. Two processes with the same
    /// id differ in it.
    pub(crate) started: u64,
    /// Whether it has ended and waits for its parent.
    pub(crate) is_zombie: bool,
}

impl ProcessInfo {
    /// Looks up the process with this id. `None` if it does not exist or cannot be read.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        system::process_info(pid)
    }
}

#[cfg(target_os = "linux")]
mod system {
    use super::ProcessInfo;

    pub(super) fn process_info(pid: u32) -> Option<ProcessInfo> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the name of the program, which may contain spaces and parentheses.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(ProcessInfo {
            started: field(22)?.parse().ok()?,
            is_zombie: matches!(field(3)?, "Z" | "X"),
        })
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::{ProcessInfo, parse_ps, ps};

    pub(super) fn process_info(pid: u32) -> Option<ProcessInfo> {
        let printed = ps(&["-o", "stat=", "-o", "lstart=", "-p", &pid.to_string()]).ok()?;
        parse_ps(&String::from_utf8_lossy(&printed))
    }
}

/// Runs `ps` and returns what it prints. Without a match it prints nothing, and fails without a message.
#[cfg(not(target_os = "linux"))]
pub(super) fn ps(args: &[&str]) -> std::io::Result<Vec<u8>> {
    let output = super::ps_command(args).output()?;
    if !output.status.success() && !output.stderr.is_empty() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(std::io::Error::other(format!("ps failed: {}", message.trim())));
    }
    Ok(output.stdout)
}

/// Reads a line of `ps -o stat= -o lstart=`: `Ss   Mon Nov  2 16:20:38 2026`.
#[cfg(any(test, not(target_os = "linux")))]
fn parse_ps(line: &str) -> Option<ProcessInfo> {
    use jiff::civil::DateTime;
    use jiff::tz::TimeZone;

    let mut words = line.split_ascii_whitespace();
    let state = words.next()?;
    let started = words.collect::<Vec<_>>().join(" ");
    let started = DateTime::strptime("%a %b %d %H:%M:%S %Y", started).ok()?;
    let started = started.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Some(ProcessInfo {
        started: u64::try_from(started.as_second()).ok()?,
        is_zombie: state.starts_with('Z'),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn this_process_runs_and_a_free_id_has_no_process() {
        let here = ProcessInfo::read(std::process::id()).unwrap();
        assert!(!here.is_zombie && here.started > 0, "{here:?}");
        assert_eq!(ProcessInfo::read(u32::MAX / 2), None);
    }

    #[rstest]
    #[case::running("Ss   Mon Nov  2 16:20:38 2026    \n", Some((1_793_636_438, false)))]
    #[case::later("R+   Mon Nov  2 16:20:39 2026\n", Some((1_793_636_439, false)))]
    #[case::zombie("Z    Sun Nov 15 00:00:00 2026\n", Some((1_794_700_800, true)))]
    #[case::no_such_process("", None)]
    #[case::another_format("S 16:20", None)]
    fn a_start_time_is_read_from_ps(#[case] line: &str, #[case] expected: Option<(u64, bool)>) {
        let expected = expected.map(|(started, is_zombie)| ProcessInfo { started, is_zombie });
        assert_eq!(parse_ps(line), expected);
    }

    /// The `ps` of Linux takes the same arguments and prints the same columns as that of macOS.
    #[test]
    fn ps_itself_is_understood() {
        if !std::path::Path::new("/bin/ps").exists() {
            return;
        }
        let id = std::process::id().to_string();
        let printed = super::super::ps_command(&["-o", "stat=", "-o", "lstart=", "-p", &id]).output();
        let info = parse_ps(&String::from_utf8_lossy(&printed.unwrap().stdout)).unwrap();
        assert!(!info.is_zombie && info.started > 1_700_000_000, "{info:?}");
    }
}
