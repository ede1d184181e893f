//! The snapshot that a sandbox starts from: an image that Daytona was given once, with the resources it comes with.

use super::DaytonaError;
use super::api::Api;
use super::size::size;
use super::wire::NewSnapshot;
use crate::engine::Digest;
use crate::sandbox::{Resources, SandboxSpec};

/// How many digits of a hash tell two snapshots apart.
const DIGITS: usize = 12;

/// The name of the snapshot that `spec.image` means, ready to be used: one of that very name, or one that is registered
/// for the image. Daytona's own when no image is named.
pub(super) async fn ready(api: &Api, spec: &SandboxSpec) -> Result<Option<String>, DaytonaError> {
    let Some(image) = &spec.image else {
        return Ok(None);
    };
    // What has a registry or a tag is an image; the address of a snapshot takes neither.
    let may_be_a_snapshot = !image.contains(['/', ':', '@']);
    if may_be_a_snapshot && api.snapshot(image, None).await?.is_some() {
        return Ok(Some(image.clone()));
    }
    let source = planned(image, &spec.resources);
    api.snapshot(&source.name, Some(&source)).await?;
    Ok(Some(source.name))
}

/// What is registered for an image. Its name changes with all that it is made from.
fn planned(image: &str, resources: &Resources) -> NewSnapshot {
    let size = size(resources);
    let parts = format!("{image}\n{:?}\n{:?}\n{:?}", size.cpu, size.memory, size.disk);
    NewSnapshot {
        name: format!("ralph-{}", &Digest::sha256(parts.as_bytes()).hex()[..DIGITS]),
        image_name: image.to_owned(),
        size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_image_or_other_resources_are_another_snapshot() {
        let more = Resources {
            cpu_millis: Some(4000),
            ..Resources::default()
        };
        let names = [
            planned("agent:v1", &Resources::default()).name,
            planned("agent:v2", &Resources::default()).name,
            planned("agent:v1", &more).name,
        ];
        assert!(names[0] != names[1] && names[0] != names[2], "{names:?}");
    }
}
