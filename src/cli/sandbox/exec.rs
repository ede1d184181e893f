//! `ralph sandbox exec`

use crate::exec::{Command, OutputLine, OutputSink, OutputStream};

use super::{ProviderArgs, find_sandbox};
use crate::cli::{CliError, CliExit, CliResult, Context, Ui};

/// Run a command in the clone of a sandbox
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ExecSandboxArgs {
    #[command(flatten)]
    provider: ProviderArgs,
    /// The sandbox, or its run
    sandbox: String,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(super) async fn exec(context: &Context, args: ExecSandboxArgs) -> CliResult {
    let provider = args.provider.connect(context)?;
    let listed = find_sandbox(provider.as_ref(), &args.sandbox).await?;
    let Some(sandbox) = provider.attach(&listed.id).await? else {
        return Err(CliError::runtime(format!(
            "sandbox `{}` no longer exists",
            listed.id
        )));
    };
    let mut words = args.command.into_iter();
    let program = words.next().unwrap_or_default();
    let command = Command::new(program)
        .args(words)
        .cwd(crate::sandbox::clone_dir(sandbox.as_ref()));
    let exit = sandbox.exec(&command, &mut PassThrough(context.ui)).await?;
    if exit.success() {
        return Ok(CliExit::Success);
    }
    Err(CliError::runtime(format!(
        "`{command}` in `{}`: {}",
        listed.id, exit.status
    )))
}

/// Copies output to the same stream of ralph, byte for byte.
struct PassThrough(Ui);

impl OutputSink for PassThrough {
    fn line(&mut self, _line: OutputLine) {}

    fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        self.0.bytes(stream, bytes);
    }

    fn wants_lines(&self) -> bool {
        false
    }
}
