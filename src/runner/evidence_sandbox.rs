//! The sandbox that evidence is gathered in, where the provider has one for that alone: created before it is needed, while
//! the agent works, and removed in the background.

use std::sync::Arc;

use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;

use crate::sandbox::{Isolation, Provider, Sandbox, SandboxError, SandboxErrorKind, SandboxSpec};
use crate::text::error_chain;

type Created = Result<Option<Box<dyn Sandbox>>, SandboxError>;

/// Creates and removes the sandboxes for evidence of one run, one after the other.
pub(super) struct EvidenceSandboxes {
    provider: Arc<dyn Provider>,
    spec: SandboxSpec,
    state: Mutex<EvidenceState>,
}

/// Whatever exists is here, so that nothing is lost when an evidence run is cancelled.
#[derive(Default)]
struct EvidenceState {
    /// Gets the sandbox of the next evidence run. The work on a run can be cut off at any time: a sandbox that is created after that
    /// is removed by what created it.
    next: Option<oneshot::Receiver<Created>>,
    /// The sandbox of this evidence run.
    current: Option<Arc<dyn Sandbox>>,
    /// The removal of earlier ones.
    closing: Option<JoinHandle<()>>,
}

impl EvidenceSandboxes {
    pub(super) fn new(provider: Arc<dyn Provider>, spec: SandboxSpec) -> Self {
        Self {
            provider,
            spec,
            state: Mutex::default(),
        }
    }

    /// Starts to create the next one, from this image, where that is cheap. Does nothing if it exists already.
    pub(super) async fn prepare(&self, image: Option<String>) {
        if self.provider.capabilities().isolation == Isolation::Container {
            self.start(&mut *self.state.lock().await, image);
        }
    }

    /// The sandbox for an evidence run, from this image. `None` if the provider has none. It is verified.
    pub(super) async fn open(&self, image: Option<String>) -> Result<Option<Arc<dyn Sandbox>>, SandboxError> {
        let mut state = self.state.lock().await;
        state.retire();
        loop {
            let is_new = state.next.is_none();
            self.start(&mut state, image.clone());
            match state.created().await {
                Ok(Some(sandbox)) => {
                    let sandbox: Arc<dyn Sandbox> = Arc::from(sandbox);
                    state.current = Some(sandbox.clone());
                    if is_new {
                        return Ok(Some(sandbox));
                    }
                    match sandbox.verify().await {
                        Ok(()) => return Ok(Some(sandbox)),
                        Err(error) => {
                            tracing::warn!(error = %error_chain(&error), "cannot use the sandbox that was prepared for evidence");
                        }
                    }
                    state.retire();
                }
                Ok(None) => return Ok(None),
                Err(error) if is_new => return Err(error),
                Err(error) => {
                    tracing::warn!(error = %error_chain(&error), "cannot prepare a sandbox for evidence");
                }
            }
        }
    }

    /// Starts to remove the sandbox of the evidence run that ended.
    pub(super) async fn retire(&self) {
        self.state.lock().await.retire();
    }

    /// Removes everything that exists.
    pub(super) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.retire();
        if let Ok(Some(sandbox)) = state.created().await {
            state.current = Some(Arc::from(sandbox));
            state.retire();
        }
        if let Some(closing) = state.closing.take() {
            let _ = closing.await;
        }
    }

    fn start(&self, state: &mut EvidenceState, image: Option<String>) {
        if state.next.is_some() {
            return;
        }
        let (provider, mut spec) = (self.provider.clone(), self.spec.clone());
        spec.image = image.or(spec.image);
        let closing = state.closing.take();
        let (sender, receiver) = oneshot::channel();
        state.next = Some(receiver);
        tokio::spawn(async move {
            // Its name is free only when the earlier one is gone.
            if let Some(closing) = closing {
                let _ = closing.await;
            }
            let created = provider.create_for_evidence(&spec).await;
            if let Err(Ok(Some(unwanted))) = sender.send(created) {
                close(&*unwanted).await;
            }
        });
    }
}

impl EvidenceState {
    /// Waits for the creation of the next one, and takes it.
    async fn created(&mut self) -> Created {
        let Some(next) = &mut self.next else {
            return Ok(None);
        };
        let created = next.await;
        self.next = None;
        created.unwrap_or_else(|_| {
            let message = "the creation of a sandbox for evidence panicked";
            Err(SandboxError::new(SandboxErrorKind::Failed, message))
        })
    }

    /// Starts to remove the current one.
    fn retire(&mut self) {
        let Some(sandbox) = self.current.take() else {
            return;
        };
        let earlier = self.closing.take();
        self.closing = Some(tokio::spawn(async move {
            if let Some(earlier) = earlier {
                let _ = earlier.await;
            }
            close(&*sandbox).await;
        }));
    }
}

/// Removes a sandbox. The next one, a resume or the orphan sweep removes what is left.
async fn close(sandbox: &dyn Sandbox) {
    if let Err(error) = sandbox.close().await {
        tracing::warn!(
            error = error_chain(&error),
            "cannot remove a sandbox for evidence"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use async_trait::async_trait;
    use tempfile::TempDir;
    use tokio::sync::Notify;

    use super::*;
    use crate::exec::tests::search_path;
    use crate::id::RunId;
    use crate::sandbox::Capabilities;
    use crate::sandbox::local::{LocalOptions, LocalProvider};

    /// Local sandboxes as those for evidence, which are created when they may be.
    struct Slow {
        local: LocalProvider,
        has_begun: Notify,
        may_create: Notify,
    }

    #[async_trait]
    impl Provider for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities {
                isolation: Isolation::Container,
                ..self.local.capabilities()
            }
        }

        async fn create(&self, spec: &SandboxSpec) -> Result<Box<dyn Sandbox>, SandboxError> {
            self.local.create(spec).await
        }

        async fn reopen(&self, spec: &SandboxSpec) -> Result<Option<Box<dyn Sandbox>>, SandboxError> {
            self.local.reopen(spec).await
        }

        async fn create_for_evidence(&self, spec: &SandboxSpec) -> Created {
            self.has_begun.notify_one();
            self.may_create.notified().await;
            self.create(spec).await.map(Some)
        }
    }

    fn count(dir: &Path) -> usize {
        std::fs::read_dir(dir).map_or(0, Iterator::count)
    }

    #[tokio::test]
    async fn a_sandbox_that_is_created_after_the_work_was_cut_off_is_removed() {
        let base = TempDir::new().unwrap();
        let provider = Arc::new(Slow {
            local: LocalProvider::new(LocalOptions {
                base: base.path().to_owned(),
                path: search_path(),
                passthrough: std::collections::BTreeMap::new(),
            }),
            has_begun: Notify::new(),
            may_create: Notify::new(),
        });
        let spec = SandboxSpec::unrestricted(RunId::random());
        let evidence = EvidenceSandboxes::new(provider.clone(), spec.clone());
        evidence.prepare(None).await;
        provider.has_begun.notified().await;
        drop(evidence);
        // One that is still wanted shows what the other one would have left.
        let wanted = EvidenceSandboxes::new(provider.clone(), spec);
        provider.may_create.notify_one();
        tokio::time::timeout(Duration::from_secs(20), async {
            while Arc::strong_count(&provider) > 2 || count(base.path()) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        provider.may_create.notify_one();
        assert!(wanted.open(None).await.unwrap().is_some());
        assert_eq!(count(base.path()), 1);
        wanted.close().await;
        assert_eq!(count(base.path()), 0);
    }
}
