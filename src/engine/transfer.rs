//! Moving images: from and to registries, and into the engine.

use bollard::errors::Error as ApiError;
use bollard::models::{BuildInfo, CreateImageInfo, ProgressDetail, PushImageInfo};
use bollard::query_parameters::{CreateImageOptions, ImportImageOptions, PushImageOptions};
use futures_util::{Stream, StreamExt};
use tokio::task::JoinHandle;

use super::image::tag_of;
use super::{Engine, EngineError, Reference, TarStream};
use crate::exec::Discard;

/// One thing an engine reports while it moves an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The layer it is about.
    pub layer: Option<String>,
    /// What happens, in the engine's words.
    pub doing: String,
    /// How far it is.
    pub amount: Option<Amount>,
}

/// How much of something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// The bytes so far.
    pub done: u64,
    /// All bytes, when that is known.
    pub total: Option<u64>,
}

/// Receives what an engine reports.
pub trait ProgressSink: Send {
    /// Takes one report.
    fn progress(&mut self, progress: Progress);

    /// Whether it wants to be told how far things are. An engine that need not tell is done sooner.
    fn wants_amounts(&self) -> bool {
        true
    }
}

impl ProgressSink for Vec<Progress> {
    fn progress(&mut self, progress: Progress) {
        self.push(progress);
    }
}

impl ProgressSink for Discard {
    fn progress(&mut self, _progress: Progress) {}

    fn wants_amounts(&self) -> bool {
        false
    }
}

impl Engine {
    /// Fetches an image from its registry, for the engine's own platform unless another (`linux/arm64`) is named.
    pub async fn pull(
        &self,
        image: &Reference,
        platform: Option<&str>,
        progress: &mut dyn ProgressSink,
    ) -> Result<(), EngineError> {
        let credentials = self.credentials(image.registry()).await?;
        let options = CreateImageOptions {
            from_image: Some(image.to_string()),
            platform: platform.unwrap_or_default().to_owned(),
            ..Default::default()
        };
        let docker = self.patient();
        let reports = docker.create_image(Some(options), None, credentials);
        follow(&image.to_string(), reports.boxed(), progress).await
    }

    /// Sends an image to its registry.
    pub async fn push(&self, image: &Reference, progress: &mut dyn ProgressSink) -> Result<(), EngineError> {
        let credentials = self.credentials(image.registry()).await?;
        let options = PushImageOptions {
            tag: Some(tag_of(image)?.to_owned()),
            ..Default::default()
        };
        let docker = self.patient();
        let reports = docker.push_image(image.repository(), Some(options), credentials);
        follow(&image.to_string(), reports.boxed(), progress).await
    }

    /// Loads what `docker save` writes. `subject` says what it is, for messages.
    ///
    /// That the engine reports no error does not mean that the image is whole: see [`Engine::try_image`].
    pub async fn load(
        &self,
        subject: &str,
        tar: TarStream,
        progress: &mut dyn ProgressSink,
    ) -> Result<(), EngineError> {
        let (body, writer) = tar.start();
        let docker = self.patient();
        let options = ImportImageOptions {
            quiet: !progress.wants_amounts(),
            ..ImportImageOptions::default()
        };
        let reports = docker.import_image_stream(options, body, None);
        let loaded = follow(subject, reports.boxed(), progress).await;
        blame(subject, loaded, writer).await
    }
}

/// When what was sent could not be made, that is the cause, whatever the engine said of a stream that broke off.
pub(super) async fn blame<T>(
    subject: &str,
    outcome: Result<T, EngineError>,
    writer: JoinHandle<std::io::Result<()>>,
) -> Result<T, EngineError> {
    match (outcome, writer.await) {
        (outcome, Ok(Err(source))) if source.kind() != std::io::ErrorKind::BrokenPipe || outcome.is_ok() => {
            let subject = subject.to_owned();
            Err(EngineError::Content { subject, source })
        }
        (outcome, _) => outcome,
    }
}

/// Passes reports on until the last one or the first error.
async fn follow<R: Report>(
    subject: &str,
    mut reports: impl Stream<Item = Result<R, ApiError>> + Unpin,
    progress: &mut dyn ProgressSink,
) -> Result<(), EngineError> {
    while let Some(report) = reports.next().await {
        let report = report.map_err(|error| EngineError::from_api(subject, error))?;
        if let Some(report) = report.read() {
            progress.progress(report);
        }
    }
    Ok(())
}

/// The shapes in which the engine reports.
trait Report {
    fn read(self) -> Option<Progress>;
}

impl Report for CreateImageInfo {
    fn read(self) -> Option<Progress> {
        report(self.id, self.status, self.progress_detail)
    }
}

impl Report for PushImageInfo {
    fn read(self) -> Option<Progress> {
        report(None, self.status, self.progress_detail)
    }
}

impl Report for BuildInfo {
    fn read(self) -> Option<Progress> {
        report(self.id, self.status.or(self.stream), self.progress_detail)
    }
}

fn report(layer: Option<String>, doing: Option<String>, detail: Option<ProgressDetail>) -> Option<Progress> {
    let bytes = |number: Option<i64>| {
        number
            .and_then(|number| u64::try_from(number).ok())
            .filter(|n| *n > 0)
    };
    let amount = detail.and_then(|detail| {
        Some(Amount {
            done: bytes(detail.current)?,
            total: bytes(detail.total),
        })
    });
    let doing = doing?.trim_end().to_owned();
    let layer = layer.filter(|id| is_layer(id));
    Some(Progress { layer, doing, amount })
}

/// Layers are named by the beginning of their digests. What is said of the whole image comes under the image's tag.
fn is_layer(id: &str) -> bool {
    id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::layer("a3b7f9dd6142", Some("a3b7f9dd6142"))]
    #[case::tag("latest", None)]
    #[case::tag_of_ours("v1f2e3d4c", None)]
    fn what_is_said_of_a_layer_is_told_from_what_is_said_of_the_image(
        #[case] id: &str,
        #[case] layer: Option<&str>,
    ) {
        let said = report(Some(id.to_owned()), Some("Pulling \n".to_owned()), None).unwrap();
        assert_eq!((said.layer.as_deref(), said.doing.as_str()), (layer, "Pulling"));
    }
}
