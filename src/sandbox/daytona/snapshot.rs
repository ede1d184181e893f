//! Snapshots, from which sandboxes start: an image that is registered at Daytona, with resources.

use super::DaytonaError;
use super::api::DaytonaApi;
use super::size::size;
use super::wire::CreateDaytonaSnapshot;
use crate::engine::Digest;
use crate::sandbox::{Resources, SandboxSpec};

/// How many hexadecimal digits of the hash a name contains.
const HASH_DIGITS: usize = 12;

/// Makes the snapshot for `spec.image` ready and returns its name. The image is the name of a snapshot, or an image for
/// which a snapshot is registered. `None` if no image is set: Daytona then uses its default.
pub(super) async fn ensure(api: &DaytonaApi, spec: &SandboxSpec) -> Result<Option<String>, DaytonaError> {
    let Some(image) = &spec.image else {
        return Ok(None);
    };
    // A name with a registry or a tag is an image; names of snapshots have neither.
    let may_be_a_snapshot = !image.contains(['/', ':', '@']);
    if may_be_a_snapshot && api.ensure_snapshot(image, None).await? {
        return Ok(Some(image.clone()));
    }
    let source = plan(image, &spec.resources);
    api.ensure_snapshot(&source.name, Some(&source)).await?;
    Ok(Some(source.name))
}

/// The snapshot to register for an image. Its name is a hash of image and resources.
fn plan(image: &str, resources: &Resources) -> CreateDaytonaSnapshot {
    let size = size(resources);
    let parts = format!("{image}\n{:?}\n{:?}\n{:?}", size.cpu, size.memory, size.disk);
    CreateDaytonaSnapshot {
        name: format!("ralph-{}", &Digest::sha256(parts.as_bytes()).hex()[..HASH_DIGITS]),
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
            plan("agent:v1", &Resources::default()).name,
            plan("agent:v2", &Resources::default()).name,
            plan("agent:v1", &more).name,
        ];
        assert!(names[0] != names[1] && names[0] != names[2], "{names:?}");
    }
}
