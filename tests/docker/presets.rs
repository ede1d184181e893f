//! The hosts of package clients, by the configuration of a real image.

use std::collections::BTreeSet;

use ralph::network::PackageClient;

use crate::need;
use crate::site::Site;
use crate::support::derived::Derived;
use crate::support::ralph::{doing, finish, run, script, whole_task};
use crate::support::{base, engine};

/// What the image has, a link among it.
const FILES: [(&str, &str); 7] = [
    ("etc/npmrc", "-> store/npmrc"),
    ("etc/store/npmrc", "registry=https://npm.image.test/\n"),
    (
        "etc/pip.conf",
        "[global]\nindex-url = https://pypi.image.test/simple\n",
    ),
    (
        "etc/apt/sources.list",
        "deb http://apt.image.test/debian stable main\n",
    ),
    (
        "etc/apt/sources.list.d/more.sources",
        "Types: deb\nURIs: https://more.image.test/\nSuites: stable\n",
    ),
    ("etc/nix/nix.conf", "substituters = https://nix.image.test\n"),
    (
        "opt/cargo/config.toml",
        "[source.crates-io]\nreplace-with = 'own'\n[source.own]\nregistry = 'sparse+https://cargo.image.test/'\n",
    ),
];
const VARIABLES: &str = "GOPROXY=https://go.image.test CARGO_HOME=/opt/cargo";

/// A project whose sandboxes start from an image with configuration of its own.
struct Mirrored {
    site: Site,
    /// Removed when it is dropped.
    _image: Derived,
}

impl Mirrored {
    async fn new() -> Result<Self, String> {
        let site = Site::new().await?;
        let base = base::image(&site.engine).await?;
        let image = Derived::of(&site.engine, &base, &FILES, VARIABLES);
        let presets: Vec<String> = PackageClient::ALL
            .iter()
            .map(|client| format!("'packages:{}'", client.name))
            .collect();
        site.place.write(
            "ralph.toml",
            &format!(
                "[agent]\nname = 'actions'\n[sandbox]\ntype = 'docker'\nimage = '{}'\n[sandbox.network]\npresets = [{}]\n{}",
                image.name,
                presets.join(", "),
                engine::seal_config()
            ),
        );
        site.place
            .write(".npmrc", "@own:registry=https://npm.project.test/\n");
        Ok(Self { site, _image: image })
    }

    fn check(&self, host: &str) -> (Option<i32>, String) {
        let ended = finish(&mut self.site.ralph(&["network", "check", host]));
        let repo = format!("{}/", self.site.place.repo().display());
        (ended.code, ended.stdout.trim_end().replace(&repo, ""))
    }
}

/// Where `network check` says that a host comes from. The presets stand in the seventh line.
const SAID: [(&str, &str); 8] = [
    (
        "npm.image.test",
        "image:/etc/npmrc:1, preset `packages:npm`, ralph.toml:7:12",
    ),
    (
        "npm.project.test",
        ".npmrc:1, preset `packages:npm`, ralph.toml:7:12",
    ),
    (
        "pypi.image.test",
        "image:/etc/pip.conf:2, preset `packages:pypi`, ralph.toml:7:28",
    ),
    (
        "cargo.image.test",
        "image:/opt/cargo/config.toml:4, preset `packages:cargo`, ralph.toml:7:45",
    ),
    (
        "apt.image.test",
        "image:/etc/apt/sources.list:1, preset `packages:apt`, ralph.toml:7:63",
    ),
    (
        "more.image.test",
        "image:/etc/apt/sources.list.d/more.sources:2, preset `packages:apt`, ralph.toml:7:63",
    ),
    (
        "nix.image.test",
        "image:/etc/nix/nix.conf:1, preset `packages:nix`, ralph.toml:7:79",
    ),
    (
        "go.image.test",
        "image:GOPROXY, preset `packages:go`, ralph.toml:7:95",
    ),
];

#[tokio::test]
async fn check_says_which_file_of_the_image_names_a_host() {
    let mirrored = need!(Mirrored::new().await);
    for (host, place) in SAID {
        let expected = format!("allowed: {host}:443: by `{host}` ({place})");
        assert_eq!(mirrored.check(host), (Some(0), expected));
    }
    // What the image replaces is not allowed beside it.
    let (code, _) = mirrored.check("pypi.org");
    assert_eq!(code, Some(1));
}

#[tokio::test]
async fn a_run_may_reach_what_its_image_names() {
    let mirrored = need!(Mirrored::new().await);
    let site = &mirrored.site;
    let asks = doing([run(
        "getent hosts npm.image.test; getent hosts registry.npmjs.org || true",
    )]);
    finish(&mut site.scripted(&script([asks, whole_task()]))).expect(0, &["blocked registry.npmjs.org "]);
    let audit = std::fs::read_to_string(site.place.run_dir().join("network.jsonl")).unwrap();
    let allowed: Vec<&str> = audit
        .lines()
        .filter(|line| line.contains("\"allowed\""))
        .collect();
    assert!(
        allowed.len() == 1 && allowed[0].contains("(image:/etc/npmrc:1, preset `packages:npm`, "),
        "{audit}"
    );
    site.expect_nothing_left();
}

#[tokio::test]
async fn what_was_read_of_an_image_is_not_read_again_and_nothing_is_left_of_it() {
    let engine = need!(engine::engine().await);
    let base = need!(base::image(&engine).await);
    let image = Derived::of(&engine, &base, &FILES, VARIABLES);
    let found = engine.image(&image.name).await.unwrap().unwrap();
    let (cache, paths) = (
        tempfile::tempdir().unwrap(),
        BTreeSet::from(["etc/npmrc".to_owned()]),
    );
    let first = engine
        .image_files(&found.id, &paths, cache.path(), jiff::Timestamp::now())
        .await
        .unwrap();
    assert_eq!(first["etc/npmrc"], FILES[1].1);
    drop(image);
    let again = engine
        .image_files(&found.id, &paths, cache.path(), jiff::Timestamp::now())
        .await
        .unwrap();
    assert_eq!(again, first);
    let more = BTreeSet::from(["etc/pip.conf".to_owned()]);
    engine
        .image_files(&found.id, &more, cache.path(), jiff::Timestamp::now())
        .await
        .expect_err("the image is gone");
}
