//! What a container is not given.

use std::path::{Path, PathBuf};
use std::{fs, io};

use ralph::engine::{Engine, EngineEndpoint};
use ralph::network::Policy;
use ralph::sandbox::docker::{SealChoice, SealError};
use ralph::sandbox::{ReadOnlyMount, SandboxSpec};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use crate::docker_test::{DockerTest, MEMORY, prints, shell};
use crate::need;
use crate::support::{base, engine};

#[tokio::test]
async fn the_agent_has_no_capability_and_no_way_to_gain_one() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let status = prints(sandbox.as_ref(), "cat /proc/self/status").await;
    for line in [
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.contains(line), "{line:?} is not in {status}");
    }
    assert_ne!(prints(sandbox.as_ref(), "id -u").await.trim(), "0");
    assert!(!shell(sandbox.as_ref(), "touch /usr/bin/mine").await.success());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn the_engine_gets_every_limit() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let of = |template: &str| room.inspect(sandbox.id(), template);
    assert_eq!(of("{{.HostConfig.Privileged}}"), "false");
    assert_eq!(of("{{.HostConfig.CapDrop}}{{.HostConfig.CapAdd}}"), "[ALL][]");
    assert_eq!(of("{{index .HostConfig.SecurityOpt 0}}"), "no-new-privileges");
    let seccomp = of("{{index .HostConfig.SecurityOpt 1}}");
    assert!(seccomp.starts_with("seccomp={"), "{seccomp}");
    assert_eq!(of("{{.HostConfig.Memory}}"), MEMORY.to_string());
    assert_eq!(of("{{.HostConfig.MemorySwap}}"), MEMORY.to_string());
    assert_eq!(of("{{.HostConfig.NanoCpus}}"), "1000000000");
    assert_eq!(of("{{.HostConfig.PidsLimit}}"), "4096");
    let holder = room.inspect(&format!("{}-net", sandbox.id()), "{{.Id}}");
    assert_eq!(of("{{.HostConfig.NetworkMode}}"), format!("container:{holder}"));
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn sockets_open_by_family_and_protocol_only() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let families = (0..50).chain([0x10_0000]).map(|family| (family, 0));
    let netlink = (0..24).map(|protocol| (16, protocol));
    let ip =
        [2, 10].map(|family| [0, 1, 6, 17, 33, 58, 115, 132, 256, 262].map(|protocol| (family, protocol)));
    let sockets: Vec<(u32, u32)> = families.chain(netlink).chain(ip.into_iter().flatten()).collect();
    let probes: Vec<String> = sockets
        .iter()
        .map(|(family, protocol)| format!("'socket {family} {protocol}'"))
        .collect();
    let probes = probes.join(" ");
    let seen = prints(
        sandbox.as_ref(),
        &format!("/.ralph/guest probe {probes} io-uring"),
    )
    .await;
    let seen: Vec<&str> = seen.lines().collect();
    assert_eq!(seen.len(), sockets.len() + 1);
    for (socket, seen) in sockets.iter().zip(&seen) {
        match socket {
            (1, _) | (2 | 10, 0 | 1 | 6 | 17 | 58 | 262) | (16, 0) => {
                assert_ne!(*seen, "filtered", "{socket:?}");
            }
            // As Docker does: libaudit takes this for a kernel without auditing.
            (16, 9) => assert!(seen.contains("Invalid argument"), "{seen}"),
            _ => assert_eq!(*seen, "filtered", "{socket:?}"),
        }
    }
    assert_eq!(seen.last(), Some(&"filtered"));
    for opens in ["socket 1 0", "socket 2 6", "socket 2 17", "socket 16 0"] {
        let line = format!("/.ralph/guest probe '{opens}'");
        assert_eq!(prints(sandbox.as_ref(), &line).await, "done\n", "{opens}");
    }
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_does_not_apply_the_seccomp_profile_is_refused() {
    let engine = need!(engine::engine().await);
    let image = need!(base::image(&engine).await);
    let dir = TempDir::new().unwrap();
    let mut options = engine::options(dir.path());
    let lax = lax_engine(&engine, dir.path());
    options.engine.env.insert("DOCKER_HOST".to_owned(), lax);
    let room = DockerTest::on(engine, options, image, dir);
    let refused = room.provider.create(&room.spec).await.map(drop).unwrap_err();
    let source = refused.cause::<SealError>().expect("it is not sealed");
    assert!(
        matches!(source, SealError::Probe(failure) if failure.check.contains("filtered")),
        "{source:?}"
    );
}

/// Passes everything on to the engine, with filters that allow everything. Returns its address.
fn lax_engine(engine: &Engine, dir: &Path) -> String {
    let EngineEndpoint::Unix(real) = engine.endpoint().clone() else {
        panic!("{}", engine.endpoint())
    };
    let socket = dir.join("lax.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = UnixStream::connect(&real).await.unwrap();
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
            });
            tokio::spawn(async move { allow_all(&mut from_client, &mut to_server).await });
        }
    });
    format!("unix://{}", socket.display())
}

/// Copies everything, but replaces one action by another of the same length.
async fn allow_all(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> io::Result<()> {
    const REFUSE: &[u8] = b"SCMP_ACT_ERRNO";
    const ALLOW: &[u8] = b"SCMP_ACT_ALLOW";
    let mut held = Vec::new();
    while from.read_buf(&mut held).await? > 0 {
        while let Some(at) = held.windows(REFUSE.len()).position(|part| part == REFUSE) {
            held[at..at + REFUSE.len()].copy_from_slice(ALLOW);
        }
        // The beginning of the word may be at the end of what has arrived so far.
        let cut = (1..REFUSE.len())
            .rev()
            .find(|length| held.ends_with(&REFUSE[..*length]));
        let rest = held.split_off(held.len() - cut.unwrap_or(0));
        to.write_all(&held).await?;
        held = rest;
    }
    to.write_all(&held).await?;
    to.shutdown().await
}

#[tokio::test]
async fn nothing_of_the_host_is_seen_but_the_workspace_the_guest_and_its_door() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let mounts = "{{range .Mounts}}{{.Destination}} {{.RW}}\n{{end}}";
    let mounts = room.inspect(sandbox.id(), mounts);
    let mut mounts: Vec<&str> = mounts.lines().collect();
    mounts.sort_unstable();
    let own = match engine::seal() {
        SealChoice::Relayed => vec!["/.ralph false", "/workspace true"],
        _ => vec!["/.ralph/door false", "/.ralph/guest false", "/workspace true"],
    };
    assert_eq!(mounts, own);
    let there =
        "ls -d /var/run/docker.sock /run/docker.sock ~/.ssh ~/.gitconfig ~/.config 2>/dev/null | wc -l";
    assert_eq!(prints(sandbox.as_ref(), there).await.trim(), "0");
    assert_eq!(prints(sandbox.as_ref(), "ls /sys/class/net").await, "lo\n");
    assert!(
        prints(sandbox.as_ref(), "stat -f -c %T /tmp")
            .await
            .contains("tmpfs")
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_mount_that_was_asked_for_can_be_read_and_not_changed() {
    let mut room = need!(DockerTest::new().await);
    let cache = room.dir.path().join("cache");
    fs::create_dir(&cache).unwrap();
    fs::write(cache.join("kept"), "as it was").unwrap();
    room.spec.mounts = vec![ReadOnlyMount {
        source: cache.clone(),
        target: PathBuf::from("/cache"),
    }];
    let sandbox = room.create().await;
    assert_eq!(prints(sandbox.as_ref(), "cat /cache/kept").await, "as it was");
    assert!(!shell(sandbox.as_ref(), "echo x > /cache/new").await.success());
    sandbox.close().await.unwrap();
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
}

#[tokio::test]
async fn a_container_names_its_owner() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let label = |name: &str| room.inspect(sandbox.id(), &format!("{{{{index .Config.Labels \"{name}\"}}}}"));
    assert_eq!(sandbox.id(), format!("agent-loop-test-ralph-{}", room.spec.run));
    assert_eq!(label("ralph.run"), room.spec.run.as_str());
    assert_eq!(label("ralph.version"), env!("CARGO_PKG_VERSION"));
    assert!(label("ralph.owner").contains(&std::process::id().to_string()));
    assert_eq!(label("ralph.fingerprint").len(), 32);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_sandbox_that_may_reach_everything_has_a_network() {
    let room = need!(DockerTest::new().await);
    let spec = SandboxSpec {
        network: Policy::allow_all(),
        ..room.spec.clone()
    };
    let sandbox = ralph::sandbox::Provider::create(room.provider.as_ref(), &spec)
        .await
        .unwrap();
    assert!(
        prints(sandbox.as_ref(), "ls /sys/class/net")
            .await
            .contains("eth0")
    );
    sandbox.close().await.unwrap();
}
