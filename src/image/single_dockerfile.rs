//! One Dockerfile for base and project layer, for a builder at another place that gets no build arguments.

use super::copied_files::copied_files;
use super::error::ImageError;
use super::reference::ImageReference;
use super::spec::{BuildMode, DockerfileContext, ImageSpec};
use super::stages::{self, BASE_ARGUMENT};
use crate::engine::ContentArchive;

/// The name of the stage that is the base.
const BASE_STAGE: &str = "ralph-base";

/// What to do if an image cannot be built from one Dockerfile.
const HINT: &str = "set `sandbox.registry`: ralph then builds the image here and pushes it there";

/// An image as one Dockerfile.
#[derive(Clone, Debug)]
pub struct SingleDockerfile {
    /// Its text.
    pub text: String,
    /// The files that it copies, if any.
    pub files: Option<ContentArchive>,
}

impl ImageSpec {
    /// The image as one Dockerfile, with the files that it copies. Fails for a Nix image, for a layer on a Dockerfile of the
    /// user, and for files that would not arrive as they are.
    pub fn single_dockerfile(&self) -> Result<SingleDockerfile, ImageError> {
        match (&self.mode, &self.project) {
            (BuildMode::Nix { attribute, .. }, _) => Err(unsendable(&format!(
                "`{attribute}` of the flake is built by Nix, not from a Dockerfile"
            ))),
            (BuildMode::Dockerfile { file, .. }, Some(_)) => Err(unsendable(&format!(
                "`.agent-loop/` adds a layer to `{}`, which may have stages of its own",
                file.name
            ))),
            (BuildMode::Dockerfile { base, file }, None) => with_files(with_base(base, &file.text), file),
            (BuildMode::Template { dockerfile, .. }, Some(layer)) => {
                with_files(merge(dockerfile, &layer.file)?, &layer.file)
            }
            (BuildMode::Template { dockerfile, .. }, None) => Ok(SingleDockerfile {
                text: dockerfile.clone(),
                files: None,
            }),
        }
    }
}

/// The text, with the files that this Dockerfile copies.
fn with_files(text: String, file: &DockerfileContext) -> Result<SingleDockerfile, ImageError> {
    let files = copied_files(file).map_err(|reason| unsendable(&reason))?;
    let files = files.map(|part| part.archive());
    Ok(SingleDockerfile { text, files })
}

/// A Dockerfile of the user, with the default of the build argument in place of the argument.
fn with_base(base: &ImageReference, text: &str) -> String {
    let (preamble, rest) = split_at_first_from(text);
    format!("{preamble}ARG {BASE_ARGUMENT}={base}\n{rest}")
}

/// The base as the first stage, and the layer on top. The lines before the first `FROM` of the layer hold for all
/// stages, so they come before the base.
fn merge(base: &str, layer: &DockerfileContext) -> Result<String, ImageError> {
    if let Some((line, reason)) = obstacle(&layer.text) {
        return Err(unsendable(&format!("line {line} of `{}` {reason}", layer.name)));
    }
    let (preamble, rest) = split_at_first_from(&layer.text);
    let staged = base.replacen('\n', &format!(" AS {BASE_STAGE}\n"), 1);
    Ok(format!(
        "{preamble}ARG {BASE_ARGUMENT}={BASE_STAGE}\n{staged}\n{rest}"
    ))
}

fn split_at_first_from(text: &str) -> (&str, &str) {
    let lines = text.split_inclusive('\n');
    let before = lines.take(stages::lines_before_first_from(text));
    text.split_at(before.map(str::len).sum())
}

/// The first line that means something else behind another stage, and why.
fn obstacle(text: &str) -> Option<(usize, &'static str)> {
    if stages::escape_character(text) != '\\' {
        return Some((1, "sets another escape character than that of the base"));
    }
    let numbered = stages::instructions(text).into_iter().find(|instruction| {
        let is_copy = instruction.words[0].eq_ignore_ascii_case("COPY");
        let mut stages = instruction
            .words
            .iter()
            .filter_map(|word| word.strip_prefix("--from="));
        is_copy && stages.any(|stage| stage.bytes().all(|byte| byte.is_ascii_digit()))
    });
    numbered.map(|instruction| (instruction.line, "names a stage by its number"))
}

fn unsendable(reason: &str) -> ImageError {
    ImageError::invalid(format!("the image cannot be built at the provider: {reason}")).with_hint(HINT)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rstest::rstest;

    use super::*;
    use crate::agent::actions::ACTIONS;
    use crate::digest::Digest;
    use crate::image::{Platform, ProjectLayer, ProjectLayerSource, ProjectName};

    fn spec(layer: Option<&str>) -> ImageSpec {
        let mode = BuildMode::Template {
            base: ImageReference::parse("debian").unwrap(),
            dockerfile: "FROM debian\n\nRUN a\n".to_owned(),
        };
        let layer = layer.map(|text| ProjectLayer {
            name: ProjectName::from_directory(Path::new("app")),
            source: ProjectLayerSource::Dockerfile,
            file: DockerfileContext {
                name: "Dockerfile.sandbox".to_owned(),
                ..DockerfileContext::alone(text.to_owned())
            },
        });
        ImageSpec::new(ACTIONS.image, Platform::LinuxAmd64, mode, layer).unwrap()
    }

    #[test]
    fn the_layer_stands_on_the_base_as_a_stage() {
        let layer = "# syntax=docker/dockerfile:1\nARG BASE_IMAGE\nARG RUST=1\nFROM rust:${RUST} AS build\n\
                     FROM ${BASE_IMAGE}\nCOPY --from=build /a /a\n";
        let expected = "# syntax=docker/dockerfile:1\nARG BASE_IMAGE\nARG RUST=1\nARG BASE_IMAGE=ralph-base\n\
                        FROM debian AS ralph-base\n\nRUN a\n\nFROM rust:${RUST} AS build\nFROM ${BASE_IMAGE}\n\
                        COPY --from=build /a /a\n";
        assert_eq!(spec(Some(layer)).single_dockerfile().unwrap().text, expected);
        assert_eq!(
            spec(None).single_dockerfile().unwrap().text,
            "FROM debian\n\nRUN a\n"
        );
    }

    #[rstest]
    #[case::number(
        "COPY --from=0 /a /a",
        "line 3 of `Dockerfile.sandbox` names a stage by its number"
    )]
    #[case::missing(
        "COPY a /a",
        "line 3 of `Dockerfile.sandbox` copies `a`, which is not in its directory or excluded by `.dockerignore`"
    )]
    fn a_layer_that_cannot_be_sent_is_refused(#[case] line: &str, #[case] reason: &str) {
        let text = format!("ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\n{line}\n");
        let error = spec(Some(&text)).single_dockerfile().unwrap_err();
        assert!(error.to_string().ends_with(reason), "{error}");
        assert!(error.hint().unwrap().contains("`sandbox.registry`"));
    }

    fn own(text: &str, layer: Option<&str>) -> ImageSpec {
        let mode = BuildMode::Dockerfile {
            base: ImageReference::parse("debian:12").unwrap(),
            file: DockerfileContext::alone(text.to_owned()),
        };
        ImageSpec { mode, ..spec(layer) }
    }

    #[test]
    fn a_dockerfile_of_the_user_gets_its_base() {
        let text = "# syntax=docker/dockerfile:1\nARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN a\n";
        let expected = "# syntax=docker/dockerfile:1\nARG BASE_IMAGE\nARG BASE_IMAGE=debian:12\nFROM ${BASE_IMAGE}\nRUN a\n";
        assert_eq!(own(text, None).single_dockerfile().unwrap().text, expected);
        let layer = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n";
        let error = own(text, Some(layer)).single_dockerfile().unwrap_err();
        assert!(
            error.to_string().contains("adds a layer to `Dockerfile`"),
            "{error}"
        );
    }

    #[test]
    fn a_nix_image_is_refused() {
        let nix = BuildMode::Nix {
            hash: Digest::sha256(b""),
            attribute: "dockerImage".to_owned(),
        };
        let error = ImageSpec {
            mode: nix,
            ..spec(None)
        }
        .single_dockerfile()
        .unwrap_err();
        assert!(error.to_string().contains("built by Nix"), "{error}");
    }
}
