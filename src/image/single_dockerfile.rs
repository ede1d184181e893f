//! One Dockerfile for base and project layer, for a builder that gets no build context and no build arguments.

use super::error::ImageError;
use super::project::ProjectLayer;
use super::spec::{BuildMode, ImageSpec};
use super::stages::{self, BASE_ARGUMENT, Instruction};

/// The name of the stage that is the base.
const BASE_STAGE: &str = "ralph-base";

/// What to do if an image cannot be built from one Dockerfile alone.
const HINT: &str = "set `sandbox.registry`: ralph then builds the image here and pushes it there";

impl ImageSpec {
    /// The image as one Dockerfile that needs no other file. Fails for a Nix image, and for a Dockerfile that uses its
    /// build context.
    pub fn single_dockerfile(&self) -> Result<String, ImageError> {
        let base = match &self.mode {
            BuildMode::Template { dockerfile, .. } => dockerfile,
            BuildMode::Dockerfile { .. } => {
                return Err(unsendable("a Dockerfile of your own is built with its directory"));
            }
            BuildMode::Nix { attribute, .. } => {
                let reason = format!("`{attribute}` of the flake is built by Nix, not from a Dockerfile");
                return Err(unsendable(&reason));
            }
        };
        match &self.project {
            None => Ok(base.clone()),
            Some(layer) => merge(base, layer),
        }
    }
}

/// The base as the first stage, and the layer on top. The lines before the first `FROM` of the layer hold for all
/// stages, so they come before the base.
fn merge(base: &str, layer: &ProjectLayer) -> Result<String, ImageError> {
    let (name, text) = (&layer.file.name, &layer.file.text);
    if let Some((line, reason)) = obstacle(text) {
        return Err(unsendable(&format!("line {line} of `{name}` {reason}")));
    }
    let preamble: String = text
        .split_inclusive('\n')
        .take(stages::lines_before_first_from(text))
        .collect();
    let rest = &text[preamble.len()..];
    let staged = base.replacen('\n', &format!(" AS {BASE_STAGE}\n"), 1);
    Ok(format!(
        "{preamble}ARG {BASE_ARGUMENT}={BASE_STAGE}\n{staged}\n{rest}"
    ))
}

/// The first line that means something else without a build context or behind another stage, and why.
fn obstacle(text: &str) -> Option<(usize, &'static str)> {
    if stages::escape_character(text) != '\\' {
        return Some((1, "sets another escape character than that of the base"));
    }
    stages::instructions(text)
        .into_iter()
        .find_map(|instruction| Some((instruction.line, problem(&instruction)?)))
}

fn problem(instruction: &Instruction) -> Option<&'static str> {
    let is = |name: &str| instruction.words[0].eq_ignore_ascii_case(name);
    let arguments = &instruction.words[1..];
    if is("RUN") {
        let mounts = arguments.iter().filter_map(|word| word.strip_prefix("--mount="));
        let mut binds = mounts.filter(|mount| !mount.contains("type=") || mount.contains("type=bind"));
        return binds
            .any(|mount| !mount.contains("from="))
            .then_some("mounts files of `.agent-loop/`");
    }
    if !is("COPY") && !is("ADD") {
        return None;
    }
    if let Some(stage) = arguments.iter().find_map(|word| word.strip_prefix("--from=")) {
        let is_number = stage.bytes().all(|byte| byte.is_ascii_digit());
        return is_number.then_some("names a stage by its number");
    }
    let is_elsewhere = |word: &&String| {
        word.starts_with("<<") || (is("ADD") && (word.contains("://") || word.starts_with("git@")))
    };
    let mut sources = arguments.iter().filter(|word| !word.starts_with("--"));
    (!sources.next().is_some_and(|first| is_elsewhere(&first))).then_some("copies files of `.agent-loop/`")
}

fn unsendable(reason: &str) -> ImageError {
    ImageError::invalid(format!(
        "the image cannot be built from one Dockerfile without other files: {reason}"
    ))
    .with_hint(HINT)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rstest::rstest;

    use super::*;
    use crate::agent::actions::ACTIONS;
    use crate::digest::Digest;
    use crate::image::{DockerfileContext, ImageReference, Platform, ProjectLayerSource, ProjectName};

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
        assert_eq!(spec(Some(layer)).single_dockerfile().unwrap(), expected);
        assert_eq!(spec(None).single_dockerfile().unwrap(), "FROM debian\n\nRUN a\n");
    }

    #[rstest]
    #[case::copy(
        "COPY certificates /etc/",
        "line 3 of `Dockerfile.sandbox` copies files of `.agent-loop/`"
    )]
    #[case::json(
        "copy [\"a\", \"b\"]",
        "line 3 of `Dockerfile.sandbox` copies files of `.agent-loop/`"
    )]
    #[case::add(
        "ADD --chown=a a.tar /a",
        "line 3 of `Dockerfile.sandbox` copies files of `.agent-loop/`"
    )]
    #[case::mount(
        "RUN --mount=type=bind,target=/a make",
        "line 3 of `Dockerfile.sandbox` mounts files of `.agent-loop/`"
    )]
    #[case::number(
        "COPY --from=0 /a /a",
        "line 3 of `Dockerfile.sandbox` names a stage by its number"
    )]
    fn a_layer_that_needs_its_context_is_refused(#[case] line: &str, #[case] reason: &str) {
        let text = format!("ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\n{line}\n");
        let error = spec(Some(&text)).single_dockerfile().unwrap_err();
        assert!(error.to_string().ends_with(reason), "{error}");
        assert!(error.hint().unwrap().contains("`sandbox.registry`"));
    }

    #[rstest]
    #[case("COPY --from=build /a /a")]
    #[case("COPY <<EOF /a\nCOPY b /b\nEOF")]
    #[case("ADD https://example.org/a.tar /a")]
    #[case("RUN --mount=type=cache,target=/root/.cache make")]
    #[case("RUN --mount=from=build,target=/b make # COPY a b")]
    fn a_layer_that_needs_no_context_is_sent(#[case] line: &str) {
        let text = format!("ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\n{line}\n");
        assert!(
            spec(Some(&text))
                .single_dockerfile()
                .unwrap()
                .ends_with(&format!("{line}\n"))
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
