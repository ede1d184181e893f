//! `ralph logs`

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use crate::event::Event;
use crate::id::RunId;
use crate::state::RunDir;

use super::Context;
use super::error::{CliError, Exit, io};
use super::select::{Which, select};
use super::terminal::line;

/// How often a followed log is looked at.
const EVERY: Duration = Duration::from_millis(200);

/// Show what happened in a run
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The run; the newest one by default
    run: Option<RunId>,
    /// Go on showing until the run ends
    #[arg(short, long)]
    follow: bool,
    /// Print the events as JSON, one object a line
    #[arg(long)]
    json: bool,
}

pub(super) fn logs(context: &Context, args: &Args) -> Result<Exit, CliError> {
    let run = select(&context.surroundings().runs()?, args.run.as_ref(), Which::Any)?;
    let path = run.events_file();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(CliError::runtime(format!(
                "run `{}` has no log yet",
                run.facts().id
            )));
        }
        Err(error) => return Err(io("read", &path)(error)),
    };
    let mut reader = BufReader::new(file);
    let mut pending = String::new();
    loop {
        let live = args.follow && is_live(&run);
        while reader.read_line(&mut pending).map_err(io("read", &path))? > 0 {
            if pending.ends_with('\n') {
                show(context, args, pending.trim_end())?;
                pending.clear();
            }
        }
        if !live {
            return Ok(Exit::Success);
        }
        std::thread::sleep(EVERY);
    }
}

fn is_live(run: &RunDir) -> bool {
    run.holder().is_ok_and(|holder| holder.is_some())
}

fn show(context: &Context, args: &Args, text: &str) -> Result<(), CliError> {
    match serde_json::from_str::<Event>(text) {
        Ok(event) if !args.json => context.ui.data(format_args!(
            "{} {}",
            event.at.strftime("%H:%M:%S"),
            line(&event, false)
        )),
        // An event of another version is still shown, as it is.
        _ => context.ui.data(text),
    }
}
