//! Kernels that lack a part of the firewall: as containers see them through a filter of system calls.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ralph::sandbox::docker::SealError;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::Daemon;
use crate::docker_test::{DockerTest, prints};
use crate::need;
use crate::sealed::{expected_rules, reason, saved};
use crate::support::{base, engine, skip};

#[tokio::test]
async fn without_nf_tables_the_older_tables_hold_and_without_both_nothing_runs() {
    let [iptables, save, save_6] =
        ["iptables-legacy", "iptables-legacy-save", "ip6tables-legacy-save"].map(skip::program);
    let (iptables, save, save_6) = (need!(iptables), need!(save), need!(save_6));
    let filter = Filter::new();
    filter.refuse(&[nf_tables()]);
    let mut daemon = need!(Daemon::with(["--seccomp-profile".to_owned(), filter.path()]).await);
    let room = room(&daemon).await;

    let sandbox = room.create().await;
    assert_eq!(prints(sandbox.as_ref(), "ls /sys/class/net").await, "lo\n");
    let pid = room.inspect(sandbox.id(), "{{.State.Pid}}");
    for program in [&save, &save_6] {
        assert_eq!(saved(program, &pid), expected_rules(), "{program:?}");
    }
    // A table that ralph did not make is seen as well.
    for (args, difference) in [
        (["--table", "nat", "--list"].as_slice(), "nat/"),
        (&["--policy", "OUTPUT", "ACCEPT"], ":OUTPUT ACCEPT"),
    ] {
        let done = Command::new("nsenter")
            .args(["--net", "--target", &pid])
            .arg(&iptables)
            .args(args)
            .output();
        assert!(done.unwrap().status.success());
        let verified = sandbox.verify().await;
        let seen = reason(&verified);
        assert!(
            matches!(seen, SealError::Different(state) if state.contains(difference)),
            "{seen:?}"
        );
        sandbox.start().await.unwrap_err();
    }
    sandbox.close().await.unwrap();

    filter.refuse(&[nf_tables(), ip_tables()]);
    daemon.restart();
    let refused = room
        .provider
        .create(&room.another_run())
        .await
        .map(drop)
        .unwrap_err();
    let source = refused.cause::<SealError>().expect("it is not sealed");
    assert!(
        source
            .to_string()
            .contains("this kernel has neither nf_tables nor the older ip_tables"),
        "{source}"
    );
    assert!(
        refused
            .hint()
            .is_some_and(|hint| hint.contains("needs nf_tables or ip_tables"))
    );
}

async fn room(daemon: &Daemon) -> DockerTest {
    let dir = TempDir::new().unwrap();
    let mut options = engine::options(dir.path());
    options.engine.env.insert("DOCKER_HOST".to_owned(), daemon.host());
    DockerTest::on(daemon.engine().await, options, base::NAME.to_owned(), dir)
}

/// A file of what containers may not ask of the kernel; all else they may.
struct Filter {
    file: PathBuf,
    _dir: TempDir,
}

impl Filter {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        Self {
            file: dir.path().join("filter.json"),
            _dir: dir,
        }
    }

    fn path(&self) -> String {
        self.file.display().to_string()
    }

    fn refuse(&self, calls: &[Value]) {
        let filter = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls });
        fs::write(&self.file, filter.to_string()).unwrap();
    }
}

/// A kernel without `nf_tables`, or anything else of netfilter's, knows no such protocol of netlink.
fn nf_tables() -> Value {
    const AF_NETLINK: u32 = 16;
    const NETLINK_NETFILTER: u32 = 12;
    const NO_SUCH_PROTOCOL: u32 = 93;
    refusal(
        "socket",
        NO_SUCH_PROTOCOL,
        [(0, AF_NETLINK), (2, NETLINK_NETFILTER)],
    )
}

/// One without `ip_tables` knows no such option of sockets.
fn ip_tables() -> Value {
    const IPPROTO_IP: u32 = 0;
    const INFO: u32 = 64;
    const NO_SUCH_OPTION: u32 = 92;
    refusal("getsockopt", NO_SUCH_OPTION, [(1, IPPROTO_IP), (2, INFO)])
}

fn refusal(call: &str, number: u32, arguments: [(u32, u32); 2]) -> Value {
    let arguments =
        arguments.map(|(index, value)| json!({ "index": index, "value": value, "op": "SCMP_CMP_EQ" }));
    json!({ "names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": number, "args": arguments })
}
