//! Programs as people use them, through an inspected connection: they trust it by the variables and files they are given,
//! and what the policy denies by path is denied to them.

use std::fs;
use std::path::PathBuf;

use rstest::rstest;

use crate::need;
use crate::site::{Site, output_text, run};
use crate::support::skip::program;

#[rstest]
#[case::curl("curl", &["--silent", "--show-error", "--fail"])]
#[case::python("python3", &["-c", "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"])]
#[tokio::test]
async fn a_client_trusts_the_inspection_and_is_denied_by_path(#[case] name: &str, #[case] args: &[&str]) {
    need!(program(name));
    let site = Site::new().await;
    let output = run(site.command(name).args(args).arg(site.url("/open/file"))).await;
    site.check(&output, "it works");
    let denied = run(site.command(name).args(args).arg(site.url("/closed"))).await;
    assert!(
        !denied.status.success() && output_text(&denied).contains("403"),
        "{}",
        output_text(&denied)
    );
}

#[tokio::test]
async fn without_the_files_it_is_not_trusted() {
    need!(program("curl"));
    let site = Site::new().await;
    let mut command = site.command("curl");
    for variable in site.inspected.trust.env.keys() {
        command.env_remove(variable);
    }
    let output = run(command.args(["--silent", "--show-error", &site.url("/open/file")])).await;
    assert!(
        output_text(&output).contains("certificate"),
        "{}",
        output_text(&output)
    );
}

#[tokio::test]
async fn openssl_verifies_it() {
    need!(program("openssl"));
    let site = Site::new().await;
    let mut command = site.command("openssl");
    command.args([
        "s_client",
        "-verify_return_error",
        "-verify_hostname",
        "a.example",
        "-servername",
        "a.example",
    ]);
    let output = run(command.args(["-connect", &site.address.to_string()])).await;
    assert!(
        output_text(&output).contains("Verify return code: 0 (ok)"),
        "{}",
        output_text(&output)
    );
}

#[tokio::test]
async fn node_fetches_through_it() {
    need!(program("node"));
    let site = Site::new().await;
    let script = "const [url, host] = process.argv.slice(1);
        const lookup = (name, options, done) => options.all ? done(null, [{ address: host, family: 4 }]) : done(null, host, 4);
        require('https').get(url, { lookup }, answer => answer.pipe(process.stdout))
            .on('error', error => { console.error(error); process.exit(1) })";
    let address = site.address.ip().to_string();
    let output = run(site
        .command("node")
        .args(["-e", script, &site.url("/open/file"), &address]))
    .await;
    site.check(&output, "it works");
}

#[tokio::test]
async fn go_fetches_through_it() {
    need!(program("go"));
    let site = Site::new().await;
    let source = r#"package main
import ("context"; "fmt"; "io"; "net"; "net/http"; "os")
func main() {
    dial := func(ctx context.Context, network, _ string) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, network, os.Args[2]) }
    client := http.Client{Transport: &http.Transport{DialContext: dial}}
    answer, err := client.Get(os.Args[1])
    if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
    io.Copy(os.Stdout, answer.Body)
}"#;
    fs::write(site.dir.path().join("main.go"), source).unwrap();
    let cache = site.dir.path().join("cache");
    let mut command = site.command("go");
    command.env("GOCACHE", &cache).env("HOME", site.dir.path());
    let output = run(command.args([
        "run",
        "main.go",
        &site.url("/open/file"),
        &site.address.to_string(),
    ]))
    .await;
    site.check(&output, "it works");
}

#[tokio::test]
async fn git_clones_through_it() {
    need!(program("git"));
    let site = Site::new().await;
    let git = |args: &[&str]| {
        let author = ["-c", "user.name=a", "-c", "user.email=a@a.example"];
        let mut command = site.command("git");
        command.args(author).args(args);
        command
    };
    let bare = "root/open/repository.git";
    for args in [
        &["init", "--quiet", "source"][..],
        &[
            "-C",
            "source",
            "commit",
            "--quiet",
            "--allow-empty",
            "--message",
            "first",
        ],
        &["clone", "--quiet", "--bare", "source", bare],
        &["-C", bare, "update-server-info"],
        &["clone", "--quiet", &site.url("/open/repository.git"), "clone"],
    ] {
        let output = run(&mut git(args)).await;
        assert!(output.status.success(), "{args:?}: {}", output_text(&output));
    }
    let log = run(&mut git(&["-C", "clone", "log", "--format=%s"])).await;
    site.check(&log, "first");
}

/// Makes the smallest package that pip takes.
const WHEEL: &str = r#"
import zipfile
with zipfile.ZipFile('root/open/pack-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('pack.py', 'print("packed")')
    wheel.writestr('pack-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: pack\nVersion: 1.0\n')
    wheel.writestr('pack-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr('pack-1.0.dist-info/RECORD', '')
"#;

#[tokio::test]
async fn pip_installs_through_it() {
    let python = need!(program("python3"));
    let site = Site::new().await;
    let venv = site.dir.path().join("venv");
    let made = run(site.command(python).args(["-m", "venv", "venv"])).await;
    need!(
        made.status
            .success()
            .then_some(())
            .ok_or("python3 has no venv module")
    );
    run(site.command(venv.join("bin/python")).args(["-c", WHEEL])).await;
    let index = site.root().join("open/simple/pack");
    fs::create_dir_all(&index).unwrap();
    fs::write(
        index.join("index.html"),
        "<a href=\"/open/pack-1.0-py3-none-any.whl\">pack-1.0-py3-none-any.whl</a>",
    )
    .unwrap();
    let mut pip = site.command(venv.join("bin/pip"));
    pip.args([
        "install",
        "--disable-pip-version-check",
        "--index-url",
        &site.url("/open/simple"),
        "pack",
    ]);
    let installed = run(&mut pip).await;
    assert!(installed.status.success(), "{}", output_text(&installed));
    let output = run(site.command(venv.join("bin/python")).args(["-c", "import pack"])).await;
    site.check(&output, "packed");
}

#[tokio::test]
async fn cargo_fetches_through_it() {
    need!(program("cargo"));
    let site = Site::new().await;
    let index = site.root().join("open/index");
    fs::create_dir_all(index.join("pa/ck")).unwrap();
    let settings = format!("{{\"dl\": \"{}\"}}", site.url("/open/{crate}.crate"));
    fs::write(index.join("config.json"), settings).unwrap();
    let (crate_file, checksum) = packed_crate();
    fs::write(site.root().join("open/pack.crate"), crate_file).unwrap();
    let entry = format!(
        "{{\"name\":\"pack\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"{checksum}\",\"features\":{{}},\"yanked\":false}}\n"
    );
    fs::write(index.join("pa/ck/pack"), entry).unwrap();
    let project = site.dir.path().join("project");
    fs::create_dir_all(project.join("src")).unwrap();
    fs::write(project.join("src/lib.rs"), "").unwrap();
    let manifest = "[package]\nname = \"project\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\npack = { version = \"1\", registry = \"own\" }\n";
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    let mut cargo = site.command("cargo");
    cargo
        .current_dir(&project)
        .envs(home_of_rustup())
        .env("CARGO_HOME", site.dir.path().join("cargo"))
        .env(
            "CARGO_REGISTRIES_OWN_INDEX",
            format!("sparse+{}", site.url("/open/index/")),
        );
    let output = run(cargo.arg("fetch")).await;
    site.check(&output, "Downloaded pack v1.0.0");
}

/// The toolchains stay where they are; nothing else of the home directory is seen.
fn home_of_rustup() -> Option<(&'static str, PathBuf)> {
    let own = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let usual = std::env::home_dir().map(|home| home.join(".rustup"));
    own.or(usual).map(|dir| ("RUSTUP_HOME", dir))
}

/// A crate, and the checksum for its index.
fn packed_crate() -> (Vec<u8>, String) {
    use sha2::Digest;
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut archive = tar::Builder::new(gzip);
    let manifest = "[package]\nname = \"pack\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    for (name, content) in [("Cargo.toml", manifest), ("src/lib.rs", "")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, format!("pack-1.0.0/{name}"), content.as_bytes())
            .unwrap();
    }
    let packed = archive.into_inner().unwrap().finish().unwrap();
    let checksum = format!("{:x}", sha2::Sha256::digest(&packed));
    (packed, checksum)
}

#[tokio::test]
async fn java_fetches_through_it() {
    need!(program("keytool"));
    let site = Site::new().await;
    let hosts = site.dir.path().join("hosts");
    fs::write(&hosts, format!("{} a.example\n", site.address.ip())).unwrap();
    // The one program of every Java that fetches over HTTPS; that it is no list of revoked certificates comes after.
    let mut keytool = site.command("keytool");
    keytool.arg(format!("-J-Djdk.net.hosts.file={}", hosts.display()));
    let output = run(keytool.args(["-printcrl", "-file", &site.url("/open/file")])).await;
    site.check_fetched(&output);
}

#[tokio::test]
async fn nix_fetches_through_it() {
    need!(program("nix"));
    let site = Site::new().await;
    let expression = format!(
        "builtins.readFile (builtins.fetchurl \"{}\")",
        site.url("/open/file")
    );
    let store = site.dir.path().join("store");
    let mut nix = site.command("nix");
    nix.args([
        "--extra-experimental-features",
        "nix-command",
        "eval",
        "--impure",
        "--raw",
        "--store",
    ]);
    let output = run(nix.arg(store).args(["--expr", &expression])).await;
    site.check(&output, "it works");
}
