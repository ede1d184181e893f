//! Snapshots, from which sandboxes start: an image that is registered at Daytona, with resources.

use serde_json::{Value, json};

use super::api::DaytonaApi;
use super::error::DaytonaError;
use super::size::size;
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
    let (name, request) = plan(image, &spec.resources);
    api.ensure_snapshot(&name, Some(request)).await?;
    Ok(Some(name))
}

/// The snapshot to register for an image, with the resources of sandboxes that start from it: its name, a hash of both, and
/// the body of the request.
fn plan(image: &str, resources: &Resources) -> (String, Value) {
    let size = size(resources);
    let parts = format!("{image}\n{:?}\n{:?}\n{:?}", size.cpu, size.memory, size.disk);
    let name = format!("ralph-{}", &Digest::sha256(parts.as_bytes()).hex()[..HASH_DIGITS]);
    let request = json!({
        "name": name,
        "imageName": image,
        "cpu": size.cpu,
        "memory": size.memory,
        "disk": size.disk,
    });
    (name, request)
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
            plan("agent:v1", &Resources::default()).0,
            plan("agent:v2", &Resources::default()).0,
            plan("agent:v1", &more).0,
        ];
        assert!(names[0] != names[1] && names[0] != names[2], "{names:?}");
    }
}
