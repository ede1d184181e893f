//! The test vectors of `docs/reference/image-hash.md` are what the code computes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;
use crate::agent::CLAUDE;
use crate::digest::Digest;

const PAGE: &str = include_str!("../../docs/reference/image-hash.md");
const DOCKERFILE: &str = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY bin /opt/bin\n";

/// The hash in the last cell of the only row of the page that starts so.
#[track_caller]
fn written(row: &str) -> String {
    let rows: Vec<&str> = PAGE.lines().filter(|line| line.starts_with(row)).collect();
    let [line] = rows[..] else {
        panic!("{} rows start with {row:?}", rows.len());
    };
    line.rsplit('`').nth(1).unwrap().to_owned()
}

fn spec(platform: Platform, mode: BuildMode) -> ImageSpec {
    ImageSpec::new(CLAUDE.image, platform, mode, None).unwrap()
}

fn dockerfile_spec(platform: Platform) -> ImageSpec {
    let base = ImageReference::parse("debian:12").unwrap();
    let dockerfile = "FROM debian:12\nUSER agent\n".to_owned();
    spec(platform, BuildMode::Template { base, dockerfile })
}

fn digest_identity() -> BaseIdentity {
    BaseIdentity::RepoDigest(format!("sha256:{}", "1".repeat(64)))
}

fn base_tag() -> ImageTag {
    let hash = dockerfile_spec(Platform::LinuxAmd64).base_hash(&digest_identity());
    ImageTag::base(CLAUDE.image, &hash)
}

/// A repository with the context of the page.
fn repository() -> tempfile::TempDir {
    let repository = tempfile::tempdir().unwrap();
    let root = repository.path().join(".agent-loop");
    fs::create_dir_all(root.join("bin")).unwrap();
    let files = [
        (".dockerignore", "*.log\n"),
        ("Dockerfile.sandbox", DOCKERFILE),
        ("bin/tool", "#!/bin/sh\n"),
        ("zü", ""),
        ("config.json", "{}"),
        ("left-out.log", "noise"),
    ];
    for (path, text) in files {
        fs::write(root.join(path), text).unwrap();
    }
    fs::set_permissions(root.join("bin/tool"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink("bin/tool", root.join("latest")).unwrap();
    repository
}

fn layer(repository: &Path) -> ProjectLayer {
    let cache = HashCache::new(repository.join("cache"), crate::clock::system());
    ProjectLayer::read(repository, &cache).unwrap().unwrap()
}

#[test]
fn a_base_has_the_hash_that_is_written_down() {
    let diff_ids = ["sha256:aa".to_owned(), "sha256:bb".to_owned()];
    let reference = ImageReference::parse("debian:12").unwrap();
    let layers = BaseIdentity::new(&reference, &[], &diff_ids);
    let (amd64, arm64) = (
        dockerfile_spec(Platform::LinuxAmd64),
        dockerfile_spec(Platform::LinuxArm64),
    );
    for (hash, row) in [
        (amd64.base_hash(&digest_identity()), "| `linux/amd64` | `sha256:"),
        (arm64.base_hash(&layers), "| `linux/arm64` | `layers:"),
        (
            amd64.base_hash(&BaseIdentity::Unresolved),
            "| `linux/amd64` | `unresolved:",
        ),
    ] {
        assert_eq!(hash.hex(), written(row));
    }
    assert!(PAGE.contains(&format!("`{base}`", base = base_tag())));
}

#[test]
fn a_nix_image_has_the_hash_that_is_written_down() {
    let hash = Digest::sha256(b"flake");
    let attribute = "dockerImage".to_owned();
    let hash =
        spec(Platform::LinuxAmd64, BuildMode::Nix { hash, attribute }).base_hash(&BaseIdentity::Unresolved);
    assert!(PAGE.contains(&format!("\n| hash |\n|---|\n| `{}` |\n", hash.hex())));
}

#[test]
fn a_context_and_a_projects_image_have_the_hashes_that_are_written_down() {
    let repository = repository();
    let layer = layer(repository.path());
    assert_eq!(
        BuildContext::default().digest().hex(),
        written("| the empty context |")
    );
    assert_eq!(layer.file.context.digest().hex(), written("| this context |"));
    assert_eq!(
        layer.hash(&base_tag()).hex(),
        written("| a project's image of it")
    );
}

#[test]
fn a_base_of_the_users_own_dockerfile_has_the_hash_that_is_written_down() {
    let repository = repository();
    let mode = BuildMode::Dockerfile {
        base: ImageReference::parse("debian:12").unwrap(),
        file: DockerfileContext {
            name: "Dockerfile".to_owned(),
            text: "FROM debian:12\nUSER agent\n".to_owned(),
            context: layer(repository.path()).file.context,
        },
    };
    let hash = spec(Platform::LinuxAmd64, mode).base_hash(&digest_identity());
    assert_eq!(hash.hex(), written("| a base with the Dockerfile"));
}

#[test]
fn an_image_of_dependencies_has_the_hash_that_is_written_down() {
    let repository = tempfile::tempdir().unwrap();
    fs::create_dir(repository.path().join(".agent-loop")).unwrap();
    fs::write(
        repository.path().join(".agent-loop/dependencies"),
        "ripgrep\njq # JSON\n",
    )
    .unwrap();
    let hash = layer(repository.path()).hash(&base_tag());
    assert_eq!(hash.hex(), written("| a project's image from `dependencies`"));
}
