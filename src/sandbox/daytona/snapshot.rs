//! Snapshots, from which sandboxes start: an image that is registered or built at Daytona, with resources.

use serde_json::{Value, json};

use super::api::DaytonaApi;
use super::error::DaytonaError;
use super::size::size;
use super::storage;
use crate::engine::{ContentArchive, Digest};
use crate::sandbox::{ImageRecords, Resources, SandboxSpec};
use crate::text::error_chain;

/// How many hexadecimal digits of the hash a name contains.
const HASH_DIGITS: usize = 12;
/// The beginning of the names of ralph's snapshots.
const PREFIX: &str = "ralph-";
/// The beginning of the names of planned images, which names of snapshots leave out.
const PLANNED_PREFIX: &str = "agent-loop-sandbox-";

/// A snapshot that sandboxes start from.
pub(super) struct PlannedSnapshot {
    pub(super) name: String,
    /// The body of the request that registers it; `None` if someone else did that.
    pub(super) request: Option<Value>,
    /// The files that the Dockerfile in the request copies.
    pub(super) files: Option<ContentArchive>,
}

/// The snapshot for `spec.image`, which is the name of a snapshot, an image for which one is registered, or the name of
/// what `spec.dockerfile` describes. `None` if no image is set: Daytona then uses its default.
pub(super) async fn plan(
    api: &DaytonaApi,
    spec: &SandboxSpec,
) -> Result<Option<PlannedSnapshot>, DaytonaError> {
    let Some(image) = &spec.image else {
        return Ok(None);
    };
    let planned = match &spec.dockerfile {
        Some(dockerfile) => built(image, dockerfile, spec.build_files.as_ref(), &spec.resources),
        // A name with a registry or a tag is an image; names of snapshots have neither.
        None if !image.contains(['/', ':', '@']) && api.snapshot(image).await?.is_some() => PlannedSnapshot {
            name: image.clone(),
            request: None,
            files: None,
        },
        None => registered(image, &spec.resources),
    };
    Ok(Some(planned))
}

/// Makes the snapshot for a spec ready and returns its name. Records it if it did not exist.
pub(super) async fn ensure(
    api: &DaytonaApi,
    spec: &SandboxSpec,
    records: Option<&ImageRecords>,
) -> Result<Option<String>, DaytonaError> {
    let Some(planned) = plan(api, spec).await? else {
        return Ok(None);
    };
    let record = || {
        let noted = records.map_or(Ok(()), |records| records.note(&planned.name));
        if let Err(error) = noted {
            // It then counts as a colleague's, and is kept for longer.
            tracing::warn!(snapshot = planned.name, error = %error_chain(&error), "cannot record a snapshot");
        }
    };
    api.ensure_snapshot(&planned, record).await?;
    Ok(Some(planned.name))
}

/// Whether a snapshot of this name is one of ralph's: its name ends with a hash.
pub(super) fn is_own(name: &str) -> bool {
    let hash = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit('-').next());
    let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    hash.is_some_and(|hash| hash.len() == HASH_DIGITS && hash.chars().all(is_digit))
}

/// The snapshot of an image that Daytona pulls, with the resources of sandboxes that start from it.
fn registered(image: &str, resources: &Resources) -> PlannedSnapshot {
    let name = format!("{PREFIX}{}", hash(image, resources));
    let source = json!({ "imageName": image });
    planned(name, source, resources)
}

/// The snapshot of a Dockerfile that Daytona builds, with the files that it copies.
fn built(
    image: &str,
    dockerfile: &str,
    files: Option<&ContentArchive>,
    resources: &Resources,
) -> PlannedSnapshot {
    let label = image.strip_prefix(PLANNED_PREFIX).unwrap_or(image);
    let context = files.map(storage::context_name);
    let hashed = match &context {
        Some(context) => format!("{dockerfile}\n{context}"),
        None => dockerfile.to_owned(),
    };
    let name = format!("{PREFIX}{label}-{}", hash(&hashed, resources));
    let mut build = json!({ "dockerfileContent": dockerfile });
    if let Some(context) = context {
        build["contextHashes"] = json!([context]);
    }
    PlannedSnapshot {
        files: files.cloned(),
        ..planned(name, json!({ "buildInfo": build }), resources)
    }
}

fn planned(name: String, mut request: Value, resources: &Resources) -> PlannedSnapshot {
    let size = size(resources);
    request["name"] = json!(name);
    request["cpu"] = json!(size.cpu);
    request["memory"] = json!(size.memory);
    request["disk"] = json!(size.disk);
    PlannedSnapshot {
        name,
        request: Some(request),
        files: None,
    }
}

fn hash(content: &str, resources: &Resources) -> String {
    let size = size(resources);
    let parts = format!("{content}\n{:?}\n{:?}\n{:?}", size.cpu, size.memory, size.disk);
    Digest::sha256(parts.as_bytes()).hex()[..HASH_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn claude(dockerfile: &str, files: Option<&ContentArchive>, resources: &Resources) -> String {
        built("agent-loop-sandbox-claude", dockerfile, files, resources).name
    }

    fn files(content: &str) -> ContentArchive {
        ContentArchive::new(Digest::sha256(content.as_bytes()), 0, |_| Ok(()))
    }

    #[test]
    fn another_image_or_other_resources_are_another_snapshot() {
        let more = Resources {
            cpu_millis: Some(4000),
            ..Resources::default()
        };
        let names = [
            registered("agent:v1", &Resources::default()).name,
            registered("agent:v2", &Resources::default()).name,
            registered("agent:v1", &more).name,
            claude("FROM a\n", None, &Resources::default()),
            claude("FROM b\n", None, &Resources::default()),
            claude("FROM a\n", None, &more),
            claude("FROM a\n", Some(&files("one")), &Resources::default()),
            claude("FROM a\n", Some(&files("another")), &Resources::default()),
        ];
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{names:?}");
            assert!(is_own(name), "{name}");
        }
        assert!(names[3].starts_with("ralph-claude-"), "{names:?}");
    }

    #[rstest]
    #[case("ralph-base")]
    #[case("ralph-0123456789AB")]
    #[case("ralph-claude-0123456789")]
    #[case("team-0123456789ab")]
    fn a_name_without_a_hash_is_not_ralphs(#[case] name: &str) {
        assert!(!is_own(name));
    }
}
