//! Images that a program makes of store paths, as Nix's `streamLayeredImage` does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ralph::engine::Digest;
use ralph::exec::Discard;
use ralph::image::load::{LoadSource, SentLayers, load};
use serde_json::json;

use super::archive;
use super::support;
use super::workshop::Workshop;
use crate::need;

const PROGRAM: &str = include_str!("../support/stream_image.py");

/// A store with a shell, some data and a greeting, and the program that makes an image of them.
struct Store<'a> {
    shop: &'a Workshop,
    dir: PathBuf,
}

impl<'a> Store<'a> {
    fn new(shop: &'a Workshop) -> Result<Self, String> {
        support::skip::program("python3")?;
        let store = Self {
            shop,
            dir: shop.path("store"),
        };
        store.write("shell/bin/busybox", &fs::read(&shop.busybox).unwrap());
        let mode = fs::Permissions::from_mode(0o555);
        fs::set_permissions(store.dir.join("shell/bin/busybox"), mode).unwrap();
        store.write(&format!("data/{}/ü", "long".repeat(30)), shop.name.as_bytes());
        store.greet("good morning");
        store.write_program(PROGRAM);
        Ok(store)
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A greeting in a store path of its own, as any change in the store gets another path.
    fn greet(&self, text: &str) {
        let greeting = Self::path_of(text);
        self.write(&format!("{greeting}/greeting"), text.as_bytes());
        let last = archive::greeting(&format!("{text} from {}", self.shop.name));
        self.write("custom/layer.tar", &last);
        self.write("custom/checksum", Digest::sha256(&last).hex().as_bytes());
        let path = |name: &str| self.dir.join(name);
        let conf = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "config": {"Cmd": [path("shell/bin/busybox"), "cat", path(&format!("{greeting}/greeting")), "/greeting"]},
            "store_dir": self.dir,
            "from_image": null,
            "store_layers": [[path("shell")], [path("data")], [path(&greeting)]],
            "customisation_layer": path("custom"),
            "repo_tag": "never:used",
            "created": "1970-01-01T00:00:01+00:00",
            "mtime": "1970-01-01T00:00:01+00:00",
            "uid": "0",
            "gid": "0",
            "uname": "root",
            "gname": "root",
        });
        self.write("image-conf.json", conf.to_string().as_bytes());
    }

    fn path_of(greeting: &str) -> String {
        format!("{}-greeting", Digest::sha256(greeting.as_bytes()).hex())
    }

    fn write_program(&self, text: &str) {
        let program = self.dir.join("stream");
        let wrapper = format!(
            "#!/bin/sh -e\nexec \"{}\"  {} \"$@\" \n",
            program.display(),
            self.dir.join("image-conf.json").display()
        );
        for (path, text) in [(program, text), (self.program(), &wrapper)] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    fn program(&self) -> PathBuf {
        self.dir.join("wrapper")
    }

    async fn load(&self, tag: &str) -> SentLayers {
        let (program, host) = (self.program(), support::engine::host());
        let request = self
            .shop
            .request(LoadSource::Program { path: program, host }, tag);
        load(&self.shop.engine, &request, &mut Discard)
            .await
            .unwrap()
            .sent
    }

    /// How often the program was run for the image itself.
    fn runs(&self) -> usize {
        let runs = fs::read_to_string(self.dir.join("runs")).unwrap_or_default();
        runs.lines()
            .filter(|conf| conf.ends_with("image-conf.json"))
            .count()
    }

    /// The layers of the image that the program prints, and their sizes.
    fn printed(&self) -> Vec<(Digest, u64)> {
        let printed = Command::new(self.program()).output().unwrap().stdout;
        let mut archive = tar::Archive::new(printed.as_slice());
        let entries = archive.entries().unwrap().map(Result::unwrap);
        let layers = entries.filter_map(|entry| {
            let path = entry.path().unwrap().into_owned();
            let digest = path.parent().filter(|dir| *dir != Path::new(""))?;
            Some((Digest::parse(&digest.to_string_lossy()).unwrap(), entry.size()))
        });
        layers.collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layers_are_those_the_program_makes_and_it_is_not_run_for_them() {
    let shop = need!(Workshop::open().await);
    let store = need!(Store::new(&shop));
    let sent = store.load("a").await;
    assert_eq!(store.runs(), 0);
    let expected = format!("good morninggood morning from {}", shop.name);
    assert_eq!(shop.run("a"), expected);

    let mut printed = store.printed();
    let bytes = printed.iter().map(|(_, size)| size).sum();
    assert_eq!(sent, SentLayers::Everything { bytes });
    let mut loaded = shop.find("a").await.unwrap().diff_ids;
    loaded.sort();
    printed.sort();
    let printed: Vec<Digest> = printed.into_iter().map(|(digest, _)| digest).collect();
    assert_eq!(loaded, printed);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_changed_image_only_what_changed_is_read_and_sent() {
    let shop = need!(Workshop::open().await);
    let store = need!(Store::new(&shop));
    store.load("a").await;
    store.greet("good evening");
    // What is remembered is not read again: it would not be found.
    fs::remove_file(store.dir.join("data").join("long".repeat(30)).join("ü")).unwrap();
    let sent = store.load("b").await;
    let SentLayers::Missing { layers: 2, bytes } = sent else {
        panic!("{sent:?}");
    };
    assert!(bytes < 20_000, "{bytes}");
    assert!(shop.run("b").starts_with("good evening"));
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_tars_look_otherwise_is_run_once() {
    let shop = need!(Workshop::open().await);
    let store = need!(Store::new(&shop));
    store.write_program(&PROGRAM.replace("tarfile.PAX_FORMAT", "tarfile.GNU_FORMAT"));
    store.load("a").await;
    assert_eq!(store.runs(), 1);
    let mut loaded = shop.find("a").await.unwrap().diff_ids;
    loaded.sort();
    let mut printed: Vec<Digest> = store.printed().into_iter().map(|(digest, _)| digest).collect();
    printed.sort();
    assert_eq!(loaded, printed);
    assert!(shop.run("a").starts_with("good morning"));
    shop.close().await;
}
