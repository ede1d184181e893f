//! Builds from Dockerfiles.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use ralph::engine::{Engine, EngineError, ImageBuild, TarStream};
use ralph::exec::Host;
use rstest::rstest;

use super::archive::ARCHITECTURES;
use super::support;
use super::support::engine::Which;
use super::workshop::{LABEL, Workshop};
use crate::need;

fn build(shop: &Workshop, tag: &str, dockerfile: &str) -> ImageBuild {
    let files = [
        ("Dockerfile", dockerfile.to_owned()),
        ("copied", "from the context".to_owned()),
    ];
    let context = TarStream::written_by(move |out| {
        let mut tar = tar::Builder::new(out);
        for (path, text) in &files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, path, text.as_bytes())?;
        }
        tar.finish()
    });
    ImageBuild {
        context,
        dockerfile: "Dockerfile".to_owned(),
        build_args: BTreeMap::from([("BASE_IMAGE".to_owned(), shop.tag("base").to_string())]),
        labels: BTreeMap::from([(LABEL.to_owned(), shop.name.clone())]),
        tag: shop.tag(tag),
        platform: None,
        use_cache: true,
        log: shop.path("build.log"),
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_dockerfile_becomes_an_image_that_runs(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    shop.load(&shop.image(&[]), "base").await.unwrap();
    let dockerfile = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY copied /copied\nRUN [\"/bin/sh\", \"-c\", \"echo made here > /made\"]\n";
    let mut output = Vec::new();
    let image = shop
        .engine
        .build(build(&shop, "built", dockerfile), &mut output)
        .await
        .unwrap();

    assert_eq!(image.labels[LABEL], shop.name);
    let tag = shop.tag("built").to_string();
    let printed = support::engine::run(&shop.engine, &tag, &["/bin/cat", "/copied", "/made"]);
    assert_eq!(printed, "from the contextmade here\n");
    let log = fs::read_to_string(shop.path("build.log")).unwrap();
    assert!(log.contains("COPY copied /copied"), "{log}");
    assert_eq!(output.len(), log.lines().count());
    shop.close().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_fails_shows_the_end_of_its_log(
    #[values(Which::Found, Which::Containerd, Which::Podman)] which: Which,
) {
    let shop = need!(Workshop::open_with(which).await);
    shop.load(&shop.image(&[]), "base").await.unwrap();
    let dockerfile =
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN [\"/bin/sh\", \"-c\", \"echo the reason; exit 7\"]\n";
    let error = shop
        .engine
        .build(build(&shop, "built", dockerfile), &mut Vec::new())
        .await
        .unwrap_err();
    let EngineError::Build { tail, log, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(tail.contains("the reason") && tail.contains('7'), "{tail}");
    assert!(fs::read_to_string(log).unwrap().contains("the reason"));
    assert_eq!(shop.find("built").await, None);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_came_out_for_another_platform_gets_no_tag() {
    let shop = need!(Workshop::open().await);
    shop.load(&shop.image(&[]), "base").await.unwrap();
    let build = ImageBuild {
        platform: Some(format!("linux/{}", ARCHITECTURES[1])),
        ..build(&shop, "built", "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n")
    };
    let error = shop.engine.build(build, &mut Vec::new()).await.unwrap_err();
    assert_eq!(shop.find("built").await, None, "{error:?}");
    assert!(error.to_string().contains(ARCHITECTURES[1]), "{error:?}");
    shop.close().await;
}

/// Stands for a CLI with `buildx`: takes the words of that plugin, and has the real CLI's own builder do the work.
const BUILDX: &str = r#"#!/bin/sh
[ "$1 $2" = "buildx version" ] && exit 0
[ "$*" = "${*#buildx build --builder default --load --progress plain }" ] && exit 64
shift 7
echo "stands for buildx" >&2
PATH=${PATH#*:} DOCKER_BUILDKIT=0 exec docker build "$@"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn where_buildx_is_installed_it_builds() {
    let shop = need!(Workshop::open().await);
    let bin = shop.path("bin");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("docker"), BUILDX).unwrap();
    fs::set_permissions(bin.join("docker"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let host = Host::new(BTreeMap::from([("PATH".to_owned(), path)]));
    let engine = Engine::connect(&support::engine::surroundings(), &host)
        .await
        .unwrap();

    shop.load(&shop.image(&[]), "base").await.unwrap();
    let dockerfile = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nCOPY copied /copied\n";
    let image = engine
        .build(build(&shop, "built", dockerfile), &mut Vec::new())
        .await
        .unwrap();
    assert_eq!(image.labels[LABEL], shop.name);
    let tag = shop.tag("built").to_string();
    assert_eq!(
        support::engine::run(&engine, &tag, &["/bin/cat", "/copied"]),
        "from the context"
    );
    let log = fs::read_to_string(shop.path("build.log")).unwrap();
    assert!(log.contains("stands for buildx"), "{log}");

    let failing = build(
        &shop,
        "failing",
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN [\"/bin/nothing\"]\n",
    );
    let error = engine.build(failing, &mut Vec::new()).await.unwrap_err();
    assert!(
        matches!(&error, EngineError::Build { tail, .. } if tail.contains("/bin/nothing")),
        "{error:?}"
    );
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_that_cannot_be_read_is_the_cause() {
    let shop = need!(Workshop::open().await);
    let context = TarStream::written_by(|_| Err(std::io::Error::other("the file is gone")));
    let build = ImageBuild {
        context,
        ..build(&shop, "built", "")
    };
    let error = shop.engine.build(build, &mut Vec::new()).await.unwrap_err();
    let EngineError::Content { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(source.to_string(), "the file is gone");
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_registry_of_a_base_is_reported_as_such() {
    let shop = need!(Workshop::open().await);
    let build = build(&shop, "built", "FROM 127.0.0.1:1/nothing:here\n");
    let error = shop.engine.build(build, &mut Vec::new()).await.unwrap_err();
    assert!(
        matches!(error, EngineError::RegistryUnreachable { .. }),
        "{error:?}"
    );
    shop.close().await;
}
