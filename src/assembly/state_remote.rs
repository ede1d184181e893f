//! From the configuration to the state remote.

use crate::config::Config;
use crate::scm::StateRemote;

use super::{AssemblyContext, AssemblyError, ErrorTopic};

/// The state remote of a project. A public one is refused.
pub(crate) async fn state_remote(
    context: &AssemblyContext,
    config: &Config,
) -> Result<Option<StateRemote>, AssemblyError> {
    let Some(url) = &config.settings.git.state_remote else {
        return Ok(None);
    };
    let remote = StateRemote {
        url: url.clone(),
        host: context.surroundings.builder_host(),
    };
    if let Some(address) = remote.public_address().await? {
        let message = format!(
            "`git.state_remote` is a public repository: {address} can be read without a credential, and checkpoints contain \
             prompts and transcripts"
        );
        return Err(AssemblyError::usage(message)
            .with_topic(ErrorTopic::Configuration)
            .with_hint("name a private repository, or a path"));
    }
    Ok(Some(remote))
}
