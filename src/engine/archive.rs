//! Puts files into containers.

use bollard::body_try_stream;
use bollard::query_parameters::UploadToContainerOptionsBuilder;

use super::transfer::prefer_writer_error;
use super::{Engine, EngineError, TarStream};

impl Engine {
    /// Unpacks an archive below a directory of a container, running or not, with the owners and modes in the archive.
    pub async fn put_archive(
        &self,
        container: &str,
        dir: &str,
        archive: TarStream,
    ) -> Result<(), EngineError> {
        let options = UploadToContainerOptionsBuilder::new().path(dir).build();
        let (bytes, writer) = archive.start();
        let sent = self
            .long_running()
            .upload_to_container(container, Some(options), body_try_stream(bytes))
            .await;
        let sent = sent.map_err(|error| EngineError::from_api(container, error));
        prefer_writer_error(container, sent, writer).await
    }
}
