//! Pulls, pushes and loads images.

use bollard::errors::Error as ApiError;
use bollard::models::{BuildInfo, CreateImageInfo, ProgressDetail, PushImageInfo};
use bollard::query_parameters::{CreateImageOptions, ImportImageOptions, PushImageOptions};
use futures_util::{Stream, StreamExt};
use tokio::task::JoinHandle;

use super::image::required_tag;
use super::{Engine, EngineError, EngineImageReference, TarStream};
use crate::exec::Discard;

/// A progress report of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferProgress {
    /// The short id of the layer; `None` for reports about the whole image.
    pub layer: Option<String>,
    /// The message of the engine, such as `Pulling`.
    pub doing: String,
    /// Bytes, when the engine reports them.
    pub amount: Option<TransferAmount>,
}

/// Transferred bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferAmount {
    /// Bytes so far.
    pub done: u64,
    /// The total, when it is known.
    pub total: Option<u64>,
}

/// Receives progress reports.
pub trait ProgressSink: Send {
    /// Takes one report.
    fn progress(&mut self, progress: TransferProgress);

    /// Whether it uses [`TransferProgress::amount`]. The engine is faster when it need not report amounts.
    fn wants_amounts(&self) -> bool {
        true
    }
}

impl ProgressSink for Vec<TransferProgress> {
    fn progress(&mut self, progress: TransferProgress) {
        self.push(progress);
    }
}

impl ProgressSink for Discard {
    fn progress(&mut self, _progress: TransferProgress) {}

    fn wants_amounts(&self) -> bool {
        false
    }
}

impl Engine {
    /// Pulls an image from its registry, for `platform` (`linux/arm64`) or else the platform of the engine.
    pub async fn pull(
        &self,
        image: &EngineImageReference,
        platform: Option<&str>,
        progress: &mut dyn ProgressSink,
    ) -> Result<(), EngineError> {
        let credentials = self.credentials(image.registry()).await?;
        let options = CreateImageOptions {
            from_image: Some(image.to_string()),
            platform: platform.unwrap_or_default().to_owned(),
            ..Default::default()
        };
        let docker = self.long_running();
        let reports = docker.create_image(Some(options), None, credentials).boxed();
        let to_progress = |info: CreateImageInfo| report(info.id, info.status, info.progress_detail);
        follow(&image.to_string(), reports, to_progress, progress).await
    }

    /// Pushes an image to its registry.
    pub async fn push(
        &self,
        image: &EngineImageReference,
        progress: &mut dyn ProgressSink,
    ) -> Result<(), EngineError> {
        let credentials = self.credentials(image.registry()).await?;
        let options = PushImageOptions {
            tag: Some(required_tag(image)?.to_owned()),
            ..Default::default()
        };
        let docker = self.long_running();
        let reports = docker
            .push_image(image.repository(), Some(options), credentials)
            .boxed();
        let to_progress = |info: PushImageInfo| report(None, info.status, info.progress_detail);
        follow(&image.to_string(), reports, to_progress, progress).await
    }

    /// Loads an archive in the format of `docker save`. `subject` names it in errors.
    ///
    /// Some engines accept an image with a missing layer without an error: see [`Engine::try_image`].
    pub async fn load(
        &self,
        subject: &str,
        tar: TarStream,
        progress: &mut dyn ProgressSink,
    ) -> Result<(), EngineError> {
        let (body, writer) = tar.start();
        let docker = self.long_running();
        let options = ImportImageOptions {
            quiet: !progress.wants_amounts(),
            ..ImportImageOptions::default()
        };
        let reports = docker.import_image_stream(options, body, None).boxed();
        let to_progress =
            |info: BuildInfo| report(info.id, info.status.or(info.stream), info.progress_detail);
        let loaded = follow(subject, reports, to_progress, progress).await;
        prefer_writer_error(subject, loaded, writer).await
    }
}

/// Returns the error of the archive's writer, if any: it is the cause of what the engine reports.
pub(super) async fn prefer_writer_error<T>(
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
async fn follow<R>(
    subject: &str,
    mut reports: impl Stream<Item = Result<R, ApiError>> + Unpin,
    to_progress: impl Fn(R) -> Option<TransferProgress>,
    progress: &mut dyn ProgressSink,
) -> Result<(), EngineError> {
    while let Some(report) = reports.next().await {
        let report = report.map_err(|error| EngineError::from_api(subject, error))?;
        if let Some(report) = to_progress(report) {
            progress.progress(report);
        }
    }
    Ok(())
}

fn report(
    layer: Option<String>,
    doing: Option<String>,
    detail: Option<ProgressDetail>,
) -> Option<TransferProgress> {
    let bytes = |number: Option<i64>| {
        number
            .and_then(|number| u64::try_from(number).ok())
            .filter(|n| *n > 0)
    };
    let amount = detail.and_then(|detail| {
        Some(TransferAmount {
            done: bytes(detail.current)?,
            total: bytes(detail.total),
        })
    });
    let doing = doing?.trim_end().to_owned();
    let layer = layer.filter(|id| is_layer(id));
    Some(TransferProgress { layer, doing, amount })
}

/// Whether a report id is the short digest of a layer. Reports about the whole image have its tag.
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
    #[case::hash_tag("v1f2e3d4c", None)]
    fn reports_about_a_layer_have_its_short_digest(#[case] id: &str, #[case] layer: Option<&str>) {
        let progress = report(Some(id.to_owned()), Some("Pulling \n".to_owned()), None).unwrap();
        assert_eq!(
            (progress.layer.as_deref(), progress.doing.as_str()),
            (layer, "Pulling")
        );
    }
}
