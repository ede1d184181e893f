//! Package managers, against registries under an allowed name, with and without proxy variables.

use rstest::rstest;

use crate::docker_test::{prints, shell};
use crate::need;
use crate::world::{World, toolchain};

const APT: &str = "mkdir -p a/lists/partial a/archives/partial && \
    echo 'deb [trusted=yes] https://{host}/apt/ ./' > a/list && \
    apt=\"apt-get --quiet=2 -o Dir::State=$PWD/a -o Dir::State::status=/dev/null -o Dir::Cache=$PWD/a \
    -o Dir::Etc::SourceList=$PWD/a/list -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User= \
    -o Acquire::https::CAInfo=/workspace/ca.pem -o APT::Update::Error-Mode=any\" && \
    $apt update && $apt download tiny && dpkg-deb --field tiny_1.0_all.deb Package";
const PIP: &str = "python3 -m pip --quiet --disable-pip-version-check --no-cache-dir --cert /workspace/ca.pem install --retries 0 \
    --index-url https://{host}/simple/ --target p tiny && PYTHONPATH=p python3 -c 'import tiny'";
const NPM: &str = "mkdir -p n && cd n && npm --silent --cafile /workspace/ca.pem --cache cache --fetch-retries 0 \
    --registry https://{host}/npm/ install tiny && node -e 'require(\"tiny\")'";

const CARGO: &str = "mkdir c c/src && cd c && echo 'fn main() { tiny::say() }' > src/main.rs && \
    printf '[package]\nname = \"c\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[dependencies]\n' > Cargo.toml && \
    echo 'tiny = { version = \"1\", registry = \"own\" }' >> Cargo.toml && export CARGO_HOME=$PWD/home CARGO_NET_RETRY=0 \
    CARGO_HTTP_CAINFO=/workspace/ca.pem CARGO_REGISTRIES_OWN_INDEX=sparse+https://{host}/cargo/ PATH=/toolchain/bin:$PATH && \
    cargo --quiet run";

#[rstest]
#[case::apt(APT, "tiny\n")]
#[case::pip(PIP, "tiny from pip\n")]
#[case::npm(NPM, "tiny from npm\n")]
#[tokio::test]
async fn packages_come_from_allowed_registries_only(#[case] line: &str, #[case] printed: &str) {
    check(&need!(World::with_tools().await), line, printed).await;
}

#[tokio::test]
async fn crates_come_from_allowed_registries_only() {
    need!(toolchain().ok_or("rustc names no directory with a cargo of its own"));
    check(&need!(World::with_tools().await), CARGO, "tiny from cargo\n").await;
}

async fn check(world: &World, line: &str, printed: &str) {
    let sandbox = world.create().await;
    let proxied = format!("export https_proxy={}; ", world.proxy());
    for (dir, variables) in [("plain", ""), ("proxied", &proxied)] {
        let at = |host: &str| {
            format!(
                "{variables} mkdir {dir}-{host} && cd {dir}-{host} && {}",
                line.replace("{host}", host)
            )
        };
        assert_eq!(prints(sandbox.as_ref(), &at("allowed.test")).await, printed);
        let asked = world.asked();
        let denied = shell(sandbox.as_ref(), &at("denied.test")).await;
        assert!(!denied.success(), "{}", denied.stdout.text());
        assert_eq!(world.asked(), asked);
    }
    sandbox.close().await.unwrap();
}
