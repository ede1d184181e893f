//! Images as files: small ones, made here.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use ralph::engine::Digest;
use serde_json::json;

/// An image: a shell from busybox, layers of data, and a last layer with a greeting.
pub struct TestImage {
    layers: Vec<Vec<u8>>,
    architecture: &'static str,
}

/// The processors of this host and of another one.
pub const ARCHITECTURES: [&str; 2] = if cfg!(target_arch = "aarch64") {
    ["arm64", "amd64"]
} else {
    ["amd64", "arm64"]
};

impl TestImage {
    /// An image with data layers of these sizes. `salt` keeps its layers apart from those of other tests.
    pub fn new(busybox: &Path, salt: &str, sizes: &[usize]) -> Self {
        let mut shell = Layer::default();
        shell.file("salt-of-the-shell", salt.as_bytes(), 0o644);
        shell.file("bin/busybox", &fs::read(busybox).unwrap(), 0o755);
        for name in ["sh", "cat"] {
            shell.link(&format!("bin/{name}"), "busybox");
        }
        let mut layers = vec![shell.finish()];
        for (number, size) in sizes.iter().enumerate() {
            layers.push(data_layer(&format!("{salt}-{number}"), *size));
        }
        layers.push(greeting(&format!("hello from {salt}")));
        Self {
            layers,
            architecture: ARCHITECTURES[0],
        }
    }

    /// The same image, said to be for another processor.
    pub fn for_architecture(mut self, architecture: &'static str) -> Self {
        self.architecture = architecture;
        self
    }

    /// The same image with another greeting.
    pub fn saying(mut self, text: &str) -> Self {
        self.layers.pop();
        self.layers.push(greeting(text));
        self
    }

    /// The same image with another data layer.
    pub fn with_data(mut self, layer: usize, salt: &str, size: usize) -> Self {
        self.layers[layer + 1] = data_layer(salt, size);
        self
    }

    pub fn layer_sizes(&self) -> Vec<u64> {
        self.layers.iter().map(|layer| layer.len() as u64).collect()
    }

    pub fn diff_ids(&self) -> Vec<Digest> {
        self.layers.iter().map(|layer| Digest::sha256(layer)).collect()
    }

    /// The image as `docker save` writes it.
    pub fn to_tar(&self) -> Vec<u8> {
        let mut tar = Layer::default();
        let names: Vec<String> = self
            .diff_ids()
            .iter()
            .map(|id| format!("{}/layer.tar", id.hex()))
            .collect();
        for (name, layer) in names.iter().zip(&self.layers) {
            tar.file(name, layer, 0o644);
        }
        let config = json!({
            "architecture": self.architecture,
            "os": "linux",
            "config": {"Cmd": ["/bin/cat", "/greeting"]},
            "rootfs": {"type": "layers", "diff_ids": self.diff_ids()},
            "history": names.iter().map(|name| json!({"comment": name})).collect::<Vec<_>>(),
        });
        let config = config.to_string();
        let config_name = format!("{}.json", Digest::sha256(config.as_bytes()).hex());
        tar.file(&config_name, config.as_bytes(), 0o644);
        let manifest = json!([{"Config": config_name, "RepoTags": ["never:used"], "Layers": names}]);
        tar.file("manifest.json", manifest.to_string().as_bytes(), 0o644);
        tar.finish()
    }

    pub fn write(&self, path: &Path) -> PathBuf {
        fs::write(path, self.to_tar()).unwrap();
        path.to_owned()
    }

    pub fn write_gzip(&self, path: &Path) -> PathBuf {
        let mut gzip = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
        gzip.write_all(&self.to_tar()).unwrap();
        gzip.finish().unwrap();
        path.to_owned()
    }

    /// A program that prints it, as Nix's `streamLayeredImage` makes one. Beside a file `stall` it stops half-way,
    /// and says so by a file `stalled`.
    pub fn write_script(&self, path: &Path) -> PathBuf {
        let archive = self.write(&path.with_extension("tar"));
        let dir = path.parent().unwrap().display();
        let archive = archive.display();
        let half = self.to_tar().len() / 2;
        let script = format!(
            "#!/bin/sh\n[ -e {dir}/stall ] || exec cat {archive}\nhead -c {half} {archive}\ntouch {dir}/stalled\nexec sleep 1000\n"
        );
        fs::write(path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_owned()
    }
}

pub fn greeting(text: &str) -> Vec<u8> {
    let mut layer = Layer::default();
    layer.file("greeting", text.as_bytes(), 0o644);
    layer.finish()
}

fn data_layer(salt: &str, size: usize) -> Vec<u8> {
    let mut layer = Layer::default();
    let block: Vec<u8> = salt.bytes().cycle().take(size).collect();
    layer.file(&format!("data/{salt}"), &block, 0o644);
    layer.finish()
}

/// A tar file in memory.
struct Layer(tar::Builder<Vec<u8>>);

impl Default for Layer {
    fn default() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }
}

impl Layer {
    fn file(&mut self, path: &str, bytes: &[u8], mode: u32) {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(mode);
        self.0.append_data(&mut header, path, bytes).unwrap();
    }

    fn link(&mut self, path: &str, target: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        self.0.append_link(&mut header, path, target).unwrap();
    }

    fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}
