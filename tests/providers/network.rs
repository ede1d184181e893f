//! The network of VMs, seen from inside: through the gateway, or through the proxy of Docker Sandboxes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use ralph::exec::{Command, Discard, Exit};
use ralph::gateway::{ByteStream, CredentialInjector};
use ralph::network::{HostName, Policy};
use ralph::sandbox::docker::SealError;
use ralph::sandbox::{Sandbox, SandboxError, SandboxSpec};
use rstest::rstest;

use crate::site::{Ground, Program, greeter};
use crate::{need, witness};

const CURL: &str = "curl -sf --max-time 30";
/// The same with a short timeout, for packets that are dropped.
const IN_VAIN: &str = "curl -sf --max-time 1";

async fn shell(sandbox: &dyn Sandbox, line: &str) -> Exit {
    sandbox.exec(&Command::shell(line), &mut Discard).await.unwrap()
}

async fn prints(sandbox: &dyn Sandbox, line: &str) -> String {
    let exit = shell(sandbox, line).await;
    assert!(exit.success(), "{line}: {} {}", exit.status, exit.stderr.text());
    exit.stdout.text()
}

/// An address of the host that others reach. Nothing is sent.
fn own_address() -> Result<IpAddr, String> {
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|error| error.to_string())?;
    let routed = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    routed
        .map(|address| address.ip())
        .map_err(|_| "the host has no address but loopback".to_owned())
}

async fn refused(ground: &Ground) -> SandboxError {
    match ground.provider().create(&ground.spec).await {
        Ok(sandbox) => panic!("{} was made", sandbox.id()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_tart_vm_reaches_allowed_names_through_the_gateway_only() {
    let (mut ground, gateway) = need!(Ground::allowing(Program::Tart, &[]).await);
    let own = need!(own_address());
    let (inside, beside) = (greeter(Ipv4Addr::LOCALHOST.into()).await, greeter(own).await);
    // Positive control: without Softnet the other listener is reached.
    let open = SandboxSpec {
        network: Policy::allow_all(),
        ..ground.another_run()
    };
    let sandbox = ground.provider().create(&open).await.unwrap();
    assert_eq!(
        prints(sandbox.as_ref(), &format!("{CURL} http://{own}:{beside}/")).await,
        "hello\n"
    );
    sandbox.close().await.unwrap();

    let rule = ralph::network::PolicyRule::parse(&format!("allowed.test:{inside}")).unwrap();
    ground.spec.network = Policy::allowlist([rule]);
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    let allowed = format!("{CURL} http://allowed.test:{inside}/");
    assert_eq!(prints(sandbox.as_ref(), &allowed).await, "hello\n");
    assert_eq!(witness(sandbox.as_ref(), &allowed).await.stdout.text(), "hello\n");
    let denied = [
        format!("{CURL} http://denied.test:{inside}/"),
        format!("{CURL} http://{own}:{beside}/"),
        format!("{IN_VAIN} --noproxy '*' http://{own}:{beside}/"),
        format!("{IN_VAIN} --noproxy '*' http://allowed.test:{inside}/"),
    ];
    let exits = join_all(denied.iter().map(|line| shell(sandbox.as_ref(), line))).await;
    for (line, exit) in denied.iter().zip(exits) {
        assert!(!exit.success(), "{line}");
    }
    sandbox.verify().await.unwrap();
    let proxy = prints(sandbox.as_ref(), "echo ${http_proxy##*@}").await;
    let proxy: std::net::SocketAddr = proxy.trim().parse().unwrap();
    assert_eq!(proxy.ip(), IpAddr::from(gateway));
    assert!(TcpStream::connect(proxy).is_ok(), "it listens");
    assert!(
        TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).is_err(),
        "there alone"
    );
    sandbox.close().await.unwrap();
    drop(sandbox);
    let mut tries = 0;
    while TcpStream::connect(proxy).is_ok() {
        tries += 1;
        assert!(tries < 100, "it does not end with the sandbox");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let audit = ground.audit.lock().unwrap();
    let asked = |name: &str| audit.iter().any(|record| record.host.as_deref() == Some(name));
    assert!(asked("allowed.test") && asked("denied.test"));
    assert!(!audit.iter().any(|record| {
        record
            .host
            .as_deref()
            .is_some_and(|host| host.contains("ralph.invalid"))
    }));
}

/// A broker that adds nothing and connects to a server on the host.
struct Model(u16);

#[async_trait]
impl CredentialInjector for Model {
    fn injects(&self, name: &HostName) -> bool {
        name.as_str() == "model.test"
    }

    async fn open(&self, _name: &HostName) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(
            tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.0)).await?,
        ))
    }
}

#[tokio::test]
async fn a_tart_vm_reaches_the_broker() {
    let (mut ground, _) = need!(Ground::allowing(Program::Tart, &["model.test:80"]).await);
    ground.spec.egress.injection = Some(Arc::new(Model(greeter(Ipv4Addr::LOCALHOST.into()).await)));
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    assert_eq!(
        prints(sandbox.as_ref(), &format!("{CURL} http://model.test/v1")).await,
        "hello\n"
    );
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn the_address_of_the_gateway_is_stored() {
    let (ground, gateway) = need!(Ground::allowing(Program::Tart, &["allowed.test"]).await);
    let allows = |address: &str| {
        ground
            .site
            .kept("calls")
            .matches(&format!("--net-softnet-allow={address}/32"))
            .count()
    };
    for _ in 0..2 {
        let sandbox = ground.provider().create(&ground.another_run()).await.unwrap();
        sandbox.close().await.unwrap();
    }
    assert_eq!((allows("192.168.64.1"), allows(&gateway.to_string())), (1, 2));
}

#[tokio::test]
async fn without_a_default_route_the_first_interface_of_the_host_is_used() {
    let (ground, gateway) = need!(Ground::allowing(Program::Tart, &["allowed.test"]).await);
    ground.site.put("no-route", "");
    let error = refused(&ground).await;
    let source = error.cause::<SealError>().expect("it is not sealed");
    assert!(matches!(source, SealError::Listen { .. }), "{source:?}");
    assert!(ground.vms().is_empty());
    ground.site.script(
        "ipconfig",
        &format!("[ \"$*\" = 'getifaddr en0' ] && echo {gateway}"),
    );
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    sandbox.close().await.unwrap();
}

#[rstest]
#[tokio::test]
async fn a_vm_with_a_leak_is_never_used(
    #[values(Program::Tart, Program::Sbx, Program::DockerSandbox)] program: Program,
) {
    let (ground, _) = need!(Ground::allowing(program, &["allowed.test"]).await);
    need!(own_address());
    ground.site.put("leaky", "");
    let error = refused(&ground).await;
    let source = error.cause::<SealError>().expect("it is not sealed");
    assert!(
        matches!(source, SealError::Escaped(_) | SealError::Probe(_)),
        "{source:?}"
    );
    assert!(ground.vms().is_empty() && ground.places().is_empty());
}

/// Networks of the engine, each with a bridge on the host. They are removed on drop.
struct Bridges {
    names: Vec<String>,
    /// The addresses of the host, in order.
    addresses: Vec<IpAddr>,
}

impl Bridges {
    fn new(count: u8) -> Result<Self, String> {
        let mut bridges = Self {
            names: Vec::new(),
            addresses: Vec::new(),
        };
        let (second, id) = (fastrand::u8(64..250), fastrand::u32(..));
        for third in 0..count {
            let name = format!("ralph-test-bridge-{id}-{third}");
            let subnet = format!("10.{second}.{third}.0/24");
            docker(&["network", "create", "--subnet", &subnet, &name])?;
            bridges.names.push(name);
            bridges.addresses.push([10, second, third, 1].into());
        }
        Ok(bridges)
    }
}

impl Drop for Bridges {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = docker(&["network", "rm", name]);
        }
    }
}

fn docker(args: &[&str]) -> Result<(), String> {
    let output = std::process::Command::new("docker").args(args).output().unwrap();
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[rstest]
#[tokio::test]
async fn on_a_host_with_many_bridges_a_leak_to_any_address_is_found(
    #[values(Program::Tart, Program::Sbx, Program::DockerSandbox)] program: Program,
) {
    let bridges = need!(Bridges::new(6));
    let (ground, _) = need!(Ground::allowing(program, &["allowed.test"]).await);
    let own = need!(own_address());
    for leak in [own, bridges.addresses[0], bridges.addresses[5]] {
        ground.site.put("leaky", &leak.to_string());
        let error = refused(&ground).await;
        let source = error.cause::<SealError>().expect("it is not sealed");
        assert!(
            matches!(source, SealError::Escaped(address) if address.ip() == leak),
            "{leak}: {source:?}"
        );
    }
    assert!(ground.vms().is_empty());
}

#[tokio::test]
async fn a_vm_whose_allowed_probes_do_not_arrive_is_never_used() {
    let (ground, gateway) = need!(Ground::allowing(Program::Tart, &["allowed.test"]).await);
    let _deaf = need!(Deaf::to(gateway));
    let error = refused(&ground).await;
    let source = error.cause::<SealError>().expect("it is not sealed");
    assert!(
        matches!(source, SealError::NotReceived(address) if address.ip() == IpAddr::from(gateway)),
        "{source:?}"
    );
}

/// A firewall of the host that drops UDP to one address. It is removed on drop.
struct Deaf(String);

impl Deaf {
    fn to(address: Ipv4Addr) -> Result<Self, String> {
        let deaf = Self(address.to_string());
        deaf.iptables("-I").map(|()| deaf)
    }

    fn iptables(&self, verb: &str) -> Result<(), String> {
        let rule = [
            verb, "INPUT", "-d", &self.0, "!", "-i", "lo", "-p", "udp", "-j", "DROP",
        ];
        let output = std::process::Command::new("iptables")
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .args(rule)
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        let _ = self.iptables("-D");
    }
}

#[rstest]
#[tokio::test]
async fn a_docker_sandbox_reaches_the_port_of_the_gateway_only(
    #[values(Program::Sbx, Program::DockerSandbox)] program: Program,
) {
    let (mut ground, _) = need!(Ground::allowing(program, &[]).await);
    let here = Ipv4Addr::LOCALHOST.into();
    let (gateway, beside) = (greeter(here).await, greeter(here).await);
    let rule = ralph::network::PolicyRule::parse(&format!("localhost:{gateway}")).unwrap();
    ground.spec.network = Policy::allowlist([rule]);
    let sandbox = ground.provider().create(&ground.spec).await.unwrap();
    let ask = |host: &str| format!("{CURL} http://{host}/");
    assert_eq!(
        prints(sandbox.as_ref(), &ask(&format!("host.docker.internal:{gateway}"))).await,
        "hello\n"
    );
    for denied in [format!("host.docker.internal:{beside}"), "denied.test".to_owned()] {
        let exit = shell(sandbox.as_ref(), &ask(&denied)).await;
        assert_eq!(exit.status.shell_code(), 22, "{denied}: {}", exit.stderr.text());
    }
    // The network is restricted again after a restart.
    sandbox.stop().await.unwrap();
    sandbox.start().await.unwrap();
    sandbox.verify().await.unwrap();
    sandbox.close().await.unwrap();
}
