//! `ralph image prune`, on an engine where all images are this test's.

use serde_json::Value;

use super::own_engine::OwnEngine;
use super::support::json_shape;
use super::support::ralph::{Ended, Place, finish};
use crate::need;

struct Yard {
    engine: OwnEngine,
    place: Place,
}

impl Yard {
    fn open() -> Result<Self, String> {
        let yard = Self {
            engine: OwnEngine::start("64m")?,
            place: Place::new(),
        };
        let archive = yard.engine.small_image();
        yard.engine
            .docker(&["import", archive.to_str().unwrap(), "small:1"]);
        yard.place.write("ralph.toml", "[agent]\nname = \"actions\"\n");
        Ok(yard)
    }

    fn image(&self, command: &str, args: &[&str]) -> Ended {
        let mut ralph = self
            .place
            .ralph(&["image", command, "--dockerfile", "image/Dockerfile"]);
        finish(ralph.args(args).env("DOCKER_HOST", self.engine.host()))
    }

    /// Builds an image of its own content, and returns its tag.
    fn build(&self, content: &str) -> String {
        let dockerfile = format!("FROM small:1\nENV CONTENT={content}\n");
        self.place.write("image/Dockerfile", &dockerfile);
        let ended = self.image("build", &[]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout.trim().to_owned()
    }

    fn names(&self) -> Vec<String> {
        let listed = self
            .engine
            .docker(&["images", "--format", "{{.Repository}}:{{.Tag}}"]);
        let mut names: Vec<String> = listed.lines().map(str::to_owned).collect();
        names.sort();
        names
    }
}

fn sorted(names: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    names.sort();
    names
}

#[test]
fn old_images_of_ours_go_and_no_others() {
    let yard = need!(Yard::open());
    let named = yard.build("a");
    yard.engine.docker(&["tag", &named, "mine:1"]);
    let [used, old, kept, planned] = ["b", "c", "d", "e"].map(|content| yard.build(content));
    yard.engine.docker(&["create", "--name", "user", &used, "true"]);
    yard.place
        .write("mine/Dockerfile", &format!("FROM {old}\nENV MINE=1\n"));
    let derived = yard.place.repo().join("mine");
    yard.engine.docker(&[
        "build",
        "--quiet",
        "--tag",
        "derived:1",
        derived.to_str().unwrap(),
    ]);
    let all = yard.names();

    let shown = yard.image("prune", &["--dry-run", "--keep", "2"]);
    shown.expect(0, &["used by a container", "would remove 2 of 5 images"]);
    assert_eq!(yard.names(), all);

    let ended = yard.image("prune", &["--keep", "2", "--json"]);
    assert_eq!(
        json_shape::check(&["image", "prune", "--json"], &ended),
        Some("image-prune")
    );
    let rows: Value = serde_json::from_str(&ended.stdout).unwrap();
    let fate = |tag: &str| {
        let rows = rows.as_array().unwrap();
        rows.iter().find(|row| row["image"] == tag).unwrap()["fate"].clone()
    };
    assert_eq!(fate(&planned), "kept: planned");
    assert_eq!(fate(&kept), "kept: newest");
    assert_eq!(fate(&used), "kept: in use");
    assert_eq!((fate(&named), fate(&old)), ("removed".into(), "removed".into()));
    let left = ["small:1", "mine:1", "derived:1", &used, &kept, &planned];
    assert_eq!(yard.names(), sorted(&left));

    yard.image("prune", &["--keep", "0"])
        .expect(0, &["removed 1 of 3 images"]);
    assert_eq!(
        yard.names(),
        sorted(&["small:1", "mine:1", "derived:1", &used, &planned])
    );
}
