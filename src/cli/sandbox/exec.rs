//! `ralph sandbox exec`

use crate::exec::{Command, OutputLine, OutputSink, OutputStream};

use super::{ProviderArgs, find_sandbox};
use crate::cli::{CliError, CliExit, CliResult, Context, ErrorTopic, Ui};
use crate::text::visible;

/// Run a command in the clone of a sandbox
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ExecSandboxArgs {
    #[command(flatten)]
    provider: ProviderArgs,
    /// Print control characters as they are, for output that goes to a file
    #[arg(long)]
    raw: bool,
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
        return Err(
            CliError::runtime(format!("sandbox `{}` no longer exists", listed.id))
                .with_topic(ErrorTopic::Sandbox),
        );
    };
    let mut words = args.command.into_iter();
    let program = words.next().unwrap_or_default();
    let command = Command::new(program)
        .args(words)
        .cwd(crate::sandbox::clone_dir(sandbox.as_ref()));
    let mut output = PassThrough {
        ui: context.ui,
        visible: (!args.raw).then(Default::default),
    };
    let exit = sandbox.exec(&command, &mut output).await?;
    if exit.success() {
        return Ok(CliExit::Success);
    }
    Err(
        CliError::runtime(format!("`{command}` in `{}`: {}", listed.id, exit.status))
            .with_topic(ErrorTopic::Sandbox),
    )
}

/// Copies output to the same stream of ralph.
struct PassThrough {
    ui: Ui,
    /// The two streams, unless they are copied byte for byte.
    visible: Option<[VisibleStream; 2]>,
}

impl OutputSink for PassThrough {
    fn line(&mut self, _line: OutputLine) {}

    fn bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        let Some([stdout, stderr]) = &mut self.visible else {
            return self.ui.bytes(stream, bytes);
        };
        let text = match stream {
            OutputStream::Stdout => stdout.push(bytes),
            OutputStream::Stderr => stderr.push(bytes),
        };
        self.ui.bytes(stream, text.as_bytes());
    }

    fn wants_lines(&self) -> bool {
        false
    }
}

/// [`visible`] for a stream of bytes. What is not UTF-8 is replaced.
#[derive(Debug, Default)]
struct VisibleStream {
    /// The beginning of a character whose rest has not come yet.
    pending: Vec<u8>,
}

impl VisibleStream {
    /// The text of these bytes, as far as its characters are complete.
    fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let complete = match self.pending.utf8_chunks().last() {
            // Whether an incomplete character is a wrong one is known only at the end of the stream.
            Some(last) if is_incomplete(last.invalid()) => self.pending.len() - last.invalid().len(),
            _ => self.pending.len(),
        };
        let rest = self.pending.split_off(complete);
        let whole = std::mem::replace(&mut self.pending, rest);
        visible(&String::from_utf8_lossy(&whole)).into_owned()
    }
}

/// Whether bytes are the beginning of a character.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stream_shows_what_its_text_shows(text in any::<String>(), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(text.len() + 1);
            let mut stream = VisibleStream::default();
            let shown = stream.push(&text.as_bytes()[..cut]) + &stream.push(&text.as_bytes()[cut..]);
            prop_assert_eq!(shown, visible(&text));
        }
    }
}
