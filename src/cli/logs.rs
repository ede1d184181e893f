//! `ralph logs`

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use crate::event::{Event, event_line};

use super::select::{is_live, select_run};
use super::{CliError, CliExit, CliResult, Context, io_error};

/// How often a followed log is read.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Print the events of a run
#[derive(Debug, clap::Args)]
pub(super) struct LogsArgs {
    /// The run; the newest one by default
    run: Option<String>,
    /// Keep printing until the run ends
    #[arg(short, long)]
    follow: bool,
    /// Print the events as JSON, one object per line
    #[arg(long)]
    json: bool,
}

pub(super) fn logs(context: &Context, args: &LogsArgs) -> CliResult {
    let run = select_run(context, args.run.as_deref())?;
    let path = run.events_file();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(CliError::runtime(format!(
                "run `{}` has no log yet",
                run.facts().id
            )));
        }
        Err(error) => return Err(io_error("read", &path)(error)),
    };
    let mut reader = BufReader::new(file);
    let mut pending = String::new();
    loop {
        let live = args.follow && is_live(&run);
        while reader.read_line(&mut pending).map_err(io_error("read", &path))? > 0 {
            if pending.ends_with('\n') {
                show(context, args, pending.trim_end())?;
                pending.clear();
            }
        }
        if !live {
            return Ok(CliExit::Success);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn show(context: &Context, args: &LogsArgs, text: &str) -> Result<(), CliError> {
    match serde_json::from_str::<Event>(text) {
        Ok(event) if !args.json => context.ui.data(format_args!(
            "{} {}",
            event.at.strftime("%H:%M:%S"),
            event_line(&event)
        )),
        // An event of another version of ralph is printed as it was written.
        _ => context.ui.data(text),
    }
}
