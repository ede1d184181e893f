//! `ralph sandbox exec`

use crate::exec::{Command, OutputLine, OutputSink, OutputStream};

use super::super::Context;
use super::super::error::{CliError, Exit};
use super::super::ui::Ui;
use super::{Kind, named};

/// Run a command in a sandbox that is there, in its clone
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    kind: Kind,
    /// The sandbox, or its run
    sandbox: String,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(super) async fn exec(context: &Context, args: Args) -> Result<Exit, CliError> {
    let provider = args.kind.provider(context)?;
    let listed = named(provider.as_ref(), &args.sandbox).await?;
    let Some(sandbox) = provider.attach(&listed.id).await? else {
        return Err(CliError::runtime(format!("the sandbox `{}` is gone", listed.id)));
    };
    let mut words = args.command.into_iter();
    let program = words.next().unwrap_or_default();
    let command = Command::new(program)
        .args(words)
        .cwd(crate::sandbox::clone_dir(sandbox.as_ref()));
    let exit = sandbox.exec(&command, &mut Through(context.ui)).await?;
    if exit.success() {
        return Ok(Exit::Success);
    }
    Err(CliError::runtime(format!(
        "`{command}` in `{}`: {}",
        listed.id, exit.status
    )))
}

/// Passes output through, byte for byte.
struct Through(Ui);

impl OutputSink for Through {
    fn line(&mut self, _line: OutputLine) {}

    fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.0.bytes(stream, bytes);
    }

    fn wants_lines(&self) -> bool {
        false
    }
}
