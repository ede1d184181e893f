use rstest::rstest;

use super::*;

/// The hosts of a client, each with its source, where `files` beginning with `/` are those of the image and those with
/// `$` are variables.
#[track_caller]
fn check(client: &PackageClient, files: &[(&'static str, &'static str)], expected: &[&str]) {
    let of = |keep: fn(&str) -> Option<&str>| -> BTreeMap<String, String> {
        let own = files.iter();
        own.filter_map(|(path, text)| Some((keep(path)?.to_owned(), (*text).to_owned())))
            .collect()
    };
    let config = PackageConfig {
        project: &of(|path| (!path.starts_with(['/', '$'])).then_some(path)),
        image: &of(|path| path.strip_prefix('/')),
        env: &of(|path| path.strip_prefix('$')),
    };
    let found: Vec<String> = client
        .hosts(&config)
        .into_iter()
        .map(|found| format!("{} ({})", found.host, found.source))
        .collect();
    assert_eq!(found, expected);
}

#[rstest]
#[case(&npm::CLIENT, &["registry.npmjs.org (by default)"])]
#[case(&pypi::CLIENT, &["pypi.org (by default)", "files.pythonhosted.org (by default)"])]
#[case(&cargo::CLIENT, &["index.crates.io (by default)", "static.crates.io (by default)", "crates.io (by default)"])]
#[case(&apt::CLIENT, &["deb.debian.org (by default)", "security.debian.org (by default)"])]
#[case(&nix::CLIENT, &["cache.nixos.org (by default)"])]
#[case(&go::CLIENT, &["proxy.golang.org (by default)", "sum.golang.org (by default)"])]
fn a_client_without_configuration_uses_its_defaults(
    #[case] client: &PackageClient,
    #[case] expected: &[&str],
) {
    check(client, &[], expected);
}

#[test]
fn npm_reads_its_registry_and_those_of_scopes() {
    check(
        &npm::CLIENT,
        &[
            (
                ".npmrc",
                "# registry=https://old.example\nregistry = https://npm.corp.example/api/\n@corp:registry=https://corp.example:8443/\n//npm.corp.example/:_authToken=x",
            ),
            ("/etc/npmrc", "registry=http://me:secret@second.example"),
        ],
        &[
            "npm.corp.example (.npmrc:2)",
            "second.example (image:/etc/npmrc:1)",
            "corp.example:8443 (.npmrc:3)",
        ],
    );
}

#[test]
fn pip_reads_its_index_and_the_extra_ones() {
    check(
        &pypi::CLIENT,
        &[
            (
                "requirements.txt",
                "--extra-index-url https://wheels.example/simple\nrequests==2.0",
            ),
            (
                "/etc/pip.conf",
                "[global]\nindex-url = https://pypi.corp.example/simple\nextra-index-url =\n    https://one.example\n    https://two.example\ntimeout = 5",
            ),
            ("$PIP_FIND_LINKS", "https://links.example/a /local"),
        ],
        &[
            "pypi.corp.example (image:/etc/pip.conf:2)",
            "wheels.example (requirements.txt:1)",
            "one.example (image:/etc/pip.conf:4)",
            "two.example (image:/etc/pip.conf:5)",
            "links.example (image:PIP_FIND_LINKS)",
        ],
    );
}

#[test]
fn cargo_follows_a_replaced_source_and_adds_registries() {
    check(
        &cargo::CLIENT,
        &[(
            ".cargo/config.toml",
            "[source.crates-io]\nreplace-with = 'a'\n[source.a]\nreplace-with = 'b'\n[source.b]\nregistry = 'sparse+https://crates.corp.example/index/'\n[registries.own]\nindex = 'https://own.example/git/index'\n",
        )],
        &[
            "crates.corp.example (.cargo/config.toml:6)",
            "own.example (.cargo/config.toml:8)",
        ],
    );
}

#[test]
fn cargo_is_not_led_in_circles() {
    check(
        &cargo::CLIENT,
        &[(
            ".cargo/config.toml",
            "[source.crates-io]\nreplace-with = 'a'\n[source.a]\nreplace-with = 'crates-io'\n",
        )],
        &[
            "index.crates.io (by default)",
            "static.crates.io (by default)",
            "crates.io (by default)",
        ],
    );
}

#[test]
fn apt_reads_both_formats() {
    check(
        &apt::CLIENT,
        &[
            (
                "/etc/apt/sources.list",
                "deb [arch=amd64 signed-by=/k] http://apt.example/debian trixie main\n#deb http://off.example x y\ndeb-src https://src.example/ a b\n",
            ),
            (
                "/etc/apt/sources.list.d/x.sources",
                "Types: deb\nURIs: http://one.example/debian\n https://two.example:8443\nSuites: trixie\n\nTypes: deb\nURIs: http://off.example\nEnabled: no\n",
            ),
            (
                "/etc/apt/sources.list.d/y.list",
                "deb cdrom:[x]/ a b\ndeb http://list.example/ ./\n",
            ),
            ("/etc/apt/sources.list.d/z.bak", "deb http://bak.example/ ./\n"),
        ],
        &[
            "apt.example (image:/etc/apt/sources.list:1)",
            "src.example (image:/etc/apt/sources.list:3)",
            "list.example (image:/etc/apt/sources.list.d/y.list:2)",
            "one.example (image:/etc/apt/sources.list.d/x.sources:2)",
            "two.example:8443 (image:/etc/apt/sources.list.d/x.sources:3)",
        ],
    );
}

#[test]
fn nix_reads_its_substituters() {
    check(
        &nix::CLIENT,
        &[(
            "/etc/nix/nix.conf",
            "substituters = https://cache.corp.example https://b.example?priority=1\nextra-substituters = https://c.example\n",
        )],
        &[
            "cache.corp.example (image:/etc/nix/nix.conf:1)",
            "b.example (image:/etc/nix/nix.conf:1)",
            "c.example (image:/etc/nix/nix.conf:2)",
        ],
    );
}

#[rstest]
#[case::list(&[("$GOPROXY", "https://go.corp.example,https://b.example|direct")], &["go.corp.example (image:GOPROXY)", "b.example (image:GOPROXY)", "sum.golang.org (by default)"])]
#[case::file(&[("/root/.config/go/env", "GOPROXY=https://f.example\nGOSUMDB=off\n")], &["f.example (image:/root/.config/go/env:1)"])]
#[case::checksums(&[("$GOSUMDB", "sum.corp.example+1a2b")], &["proxy.golang.org (by default)", "sum.corp.example (image:GOSUMDB)"])]
fn go_reads_its_variables(#[case] files: &[(&'static str, &'static str)], #[case] expected: &[&str]) {
    check(&go::CLIENT, files, expected);
}

#[rstest]
#[case::npm(
    &npm::CLIENT,
    "NPM_CONFIG_GLOBALCONFIG=/opt/rc",
    "opt/rc",
    "registry=https://a.example"
)]
#[case::pip(
    &pypi::CLIENT,
    "PIP_CONFIG_FILE=/opt/pip.conf",
    "opt/pip.conf",
    "index-url = https://a.example"
)]
#[case::cargo(
    &cargo::CLIENT,
    "CARGO_HOME=/opt/cargo",
    "opt/cargo/config.toml",
    "source.crates-io.registry = 'https://a.example'"
)]
#[case::nix(
    &nix::CLIENT,
    "NIX_CONF_DIR=/opt/nix",
    "opt/nix/nix.conf",
    "substituters = https://a.example"
)]
#[case::go(&go::CLIENT, "GOENV=/opt/env", "opt/env", "GOPROXY=https://a.example")]
fn a_variable_of_the_image_says_where_its_configuration_is(
    #[case] client: &PackageClient,
    #[case] variable: &str,
    #[case] path: &str,
    #[case] text: &str,
) {
    let (variable, value) = variable.split_once('=').unwrap();
    let map = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let env = map(variable, value);
    assert!(client.image_paths(&env).contains(&path.to_owned()));
    let config = PackageConfig {
        image: &map(path, text),
        env: &env,
        ..PackageConfig::EMPTY
    };
    let found = client.hosts(&config);
    let said = format!("{} ({})", found[0].host, found[0].source);
    assert_eq!(said, format!("a.example (image:/{path}:1)"));
}

#[test]
fn what_is_no_name_is_passed_over() {
    check(
        &npm::CLIENT,
        &[(
            ".npmrc",
            "registry=http://10.0.0.1:4873\n@a:registry=file:///x\n@b:registry=not a url",
        )],
        &["registry.npmjs.org (by default)"],
    );
}

#[test]
fn a_directory_is_not_left_through_a_link() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("secret"), "registry=https://a.example").unwrap();
    let project = dir.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::os::unix::fs::symlink("../secret", project.join(".npmrc")).unwrap();
    std::os::unix::fs::symlink("..", project.join("up")).unwrap();
    let tree = ConfigDirectory(project.clone());
    assert_eq!(tree.read(".npmrc"), None);
    assert_eq!(tree.read("up/secret"), None);
    assert_eq!(tree.names("up"), [""; 0]);
    std::fs::write(project.join("pip.conf"), "x").unwrap();
    assert_eq!(tree.read("pip.conf").as_deref(), Some("x"));
}
