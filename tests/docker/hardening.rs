//! What a container is not given.

use std::fs;
use std::path::PathBuf;

use ralph::network::Policy;
use ralph::sandbox::{ReadOnlyMount, SandboxSpec};

use crate::docker_test::{DockerTest, MEMORY, prints, shell};
use crate::need;

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
async fn the_engine_is_told_every_limit() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let of = |template: &str| room.inspect(sandbox.id(), template);
    assert_eq!(of("{{.HostConfig.Privileged}}"), "false");
    assert_eq!(of("{{.HostConfig.CapDrop}}{{.HostConfig.CapAdd}}"), "[ALL][]");
    assert_eq!(of("{{.HostConfig.SecurityOpt}}"), "[no-new-privileges]");
    assert_eq!(of("{{.HostConfig.Memory}}"), MEMORY.to_string());
    assert_eq!(of("{{.HostConfig.MemorySwap}}"), MEMORY.to_string());
    assert_eq!(of("{{.HostConfig.NanoCpus}}"), "1000000000");
    assert_eq!(of("{{.HostConfig.PidsLimit}}"), "4096");
    let holder = room.inspect(&format!("{}-net", sandbox.id()), "{{.Id}}");
    assert_eq!(of("{{.HostConfig.NetworkMode}}"), format!("container:{holder}"));
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn nothing_of_the_host_is_seen_but_the_workspace_the_guest_and_its_door() {
    let room = need!(DockerTest::new().await);
    let sandbox = room.create().await;
    let mounts = "{{range .Mounts}}{{.Destination}} {{.RW}}\n{{end}}";
    let mounts = room.inspect(sandbox.id(), mounts);
    let mut mounts: Vec<&str> = mounts.lines().collect();
    mounts.sort_unstable();
    assert_eq!(
        mounts,
        ["/.ralph/door false", "/.ralph/guest false", "/workspace true"]
    );
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
async fn a_container_tells_whose_it_is() {
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
