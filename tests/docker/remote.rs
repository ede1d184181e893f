//! Engines that see no directory of this host, or whose users are others than those of this host: the workspace is in a volume
//! of the engine, and its files are copied.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph::engine::{Engine, EngineEndpoint, EngineEnvironment};
use ralph::exec::Host;
use ralph::sandbox::docker::{DockerOptions, SealChoice, WorkspaceChoice, provider};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::daemon::{Daemon, Users};
use crate::docker_test::DockerTest;
use crate::need;
use crate::sealed::{Sealed, eventually_async, holder};
use crate::site::{LEFT_BEHIND, Site, slow};
use crate::support::engine::docker;
use crate::support::ralph::{Live, commit, doing, eventually, finish, run, script, whole_task, write};
use crate::support::sshd::Sshd;
use crate::support::{base, engine};

/// What reaches an engine on another host: variables of ralph, and what serves the address.
struct Remote {
    variables: Vec<(&'static str, String)>,
    server: Option<Sshd>,
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_reached_by_tcp_does_the_whole_job() {
    let site = need!(Site::new().await);
    let address = forward(&site.engine, None).await;
    let remote = Remote {
        variables: vec![("DOCKER_HOST", format!("tcp://{address}"))],
        server: None,
    };
    expect_whole_job(&site, &remote);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_reached_by_tls_does_the_whole_job() {
    let site = need!(Site::new().await);
    let certificates = site.place.path().join("certificates");
    let acceptor = mutual_tls(&certificates);
    let address = forward(&site.engine, Some(acceptor)).await;
    let remote = Remote {
        variables: vec![
            ("DOCKER_HOST", format!("tcp://{address}")),
            ("DOCKER_TLS_VERIFY", "1".to_owned()),
            ("DOCKER_CERT_PATH", certificates.display().to_string()),
        ],
        server: None,
    };
    expect_whole_job(&site, &remote);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_reached_by_ssh_does_the_whole_job() {
    let site = need!(Site::new().await);
    let EngineEndpoint::Unix(socket) = site.engine.endpoint() else {
        panic!("{} is no socket", site.engine.endpoint());
    };
    let sshd = need!(Sshd::start(site.place.path(), ""));
    let path = format!("{}:{}", sshd.programs.display(), std::env::var("PATH").unwrap());
    let remote = Remote {
        variables: vec![
            ("DOCKER_HOST", format!("ssh://engine{}", socket.display())),
            ("PATH", path),
        ],
        server: Some(sshd),
    };
    expect_whole_job(&site, &remote);
    let sshd = remote.server.as_ref().unwrap();
    eventually("the clients of SSH end", || sshd.clients().is_empty());
    // A host that does not answer is named, with the reason.
    let mut command = site.ralph(&["selftest"]);
    command.envs(remote.variables.clone());
    let ended = finish(command.env("DOCKER_HOST", "ssh://nowhere"));
    ended.expect(1, &["cannot reach the container engine at ssh://nowhere: "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_workspace_is_refused_on_another_host() {
    let site = need!(Site::new().await);
    let address = forward(&site.engine, None).await;
    let mut command = site.ralph(&["selftest", "--set", "sandbox.docker.workspace=shared"]);
    let ended = finish(command.env("DOCKER_HOST", format!("tcp://{address}")));
    let cause = format!("the engine at tcp://{address} is not on this host");
    let hint = "hint: set sandbox.docker.workspace = \"auto\"";
    ended.expect(1, &["cannot share a workspace", &cause, hint]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_of_this_host_is_refused_on_another() {
    let site = need!(Site::new().await);
    let address = forward(&site.engine, None).await;
    let mount = "sandbox.mounts=[{source = \"/srv\", target = \"/srv\"}]";
    let mut command = site.scripted(&script([whole_task()]));
    command.args(["--set", mount]);
    let ended = finish(command.env("DOCKER_HOST", format!("tcp://{address}")));
    ended.expect(1, &["cannot see `/srv` of this host (sandbox.mounts)"]);
    site.expect_nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_cannot_be_handed_over_by_another_host() {
    let site = need!(Site::new().await);
    let address = forward(&site.engine, None).await;
    for policy in ["deny", "allowlist"] {
        let mut command = site.scripted(&script([whole_task()]));
        command.args(["--set", "sandbox.docker.seal=handed"]);
        command.args(["--set", &format!("sandbox.network.policy={policy}")]);
        let ended = finish(command.env("DOCKER_HOST", format!("tcp://{address}")));
        let cause = "cannot hand sockets to ralph as sandbox.docker.seal = \"handed\" demands";
        ended.expect(1, &[cause, "hint: set sandbox.docker.seal = \"auto\""]);
    }
    site.expect_nothing_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_this_host_is_mounted_on_another_and_no_volume_is_left() {
    let mut sealed = need!(Sealed::new().await);
    let options = at_address(&sealed.room, &forward(&sealed.room.engine, None).await);
    sealed.room.provider = Box::new(provider(options));
    let sandbox = sealed.room.create().await;
    assert_eq!(sealed.ask(sandbox.as_ref()).await, "hello\n");
    sandbox.verify().await.unwrap();
    let mut volumes = Vec::new();
    for container in [sandbox.id().to_owned(), holder(sandbox.as_ref())] {
        let mounts = sealed
            .room
            .inspect(&container, "{{range .Mounts}}{{.Type}} {{.Name}}\n{{end}}");
        for mount in mounts.lines() {
            let volume = mount.strip_prefix("volume ");
            volumes.push(volume.unwrap_or_else(|| panic!("{mounts}")).to_owned());
        }
    }
    // The workspace, and the guest that both see.
    assert_eq!(volumes.len(), 3, "{volumes:?}");
    sandbox.close().await.unwrap();
    expect_no_volume(&sealed.room.engine, &volumes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_ralph_is_killed_leaves_no_volume_once_it_is_resumed() {
    let _held = LEFT_BEHIND.lock().await;
    let site = need!(Site::new().await);
    let host = format!("tcp://{}", forward(&site.engine, None).await);
    let live = Live::start(site.scripted(&slow()).env("DOCKER_HOST", &host));
    let has_started = |container: &String| {
        let check = ["exec", container, "test", "-e", "/workspace/work/started"];
        let done = Command::new("docker").args(check).output();
        done.unwrap().status.success()
    };
    eventually("the first iteration begins", || {
        site.containers().iter().any(has_started)
    });
    let format = "{{range .Mounts}}{{.Name}}\n{{end}}";
    let of = |container: &String| docker(&site.engine, &["inspect", "--format", format, container]);
    let listed: String = site.all_containers().iter().map(of).collect();
    let volumes: Vec<String> = listed.split_whitespace().map(str::to_owned).collect();
    assert!(!volumes.is_empty());
    live.signal("KILL");
    assert_eq!(live.wait().code, None);
    finish(site.ralph(&["resume"]).env("DOCKER_HOST", &host)).expect(0, &["done: "]);
    site.expect_nothing_left();
    expect_no_volume(&site.engine, &volumes);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ssh_connection_that_ends_is_opened_again_and_leaves_no_process() {
    let site = need!(Site::new().await);
    let sshd = need!(Sshd::start(site.place.path(), ""));
    let EngineEndpoint::Unix(socket) = site.engine.endpoint() else {
        panic!("{} is no socket", site.engine.endpoint());
    };
    let environment = EngineEnvironment {
        env: [(
            "DOCKER_HOST".to_owned(),
            format!("ssh://engine{}", socket.display()),
        )]
        .into(),
        home: None,
    };
    let path = format!("{}:{}", sshd.programs.display(), std::env::var("PATH").unwrap());
    let host = Host::new([("PATH".to_owned(), path)].into());
    let engine = Engine::connect(&environment, &host).await.unwrap();
    let clients = sshd.clients();
    assert_eq!(clients.len(), 1, "{clients:?}");
    kill_process(Pid::from_raw(clients[0]).unwrap(), Signal::KILL).unwrap();
    eventually_async(|| sshd.clients().iter().any(|client| !clients.contains(client))).await;
    let mut info = engine.info().await;
    let give_up = Instant::now() + Duration::from_secs(60);
    while info.is_err() && Instant::now() < give_up {
        tokio::time::sleep(Duration::from_millis(100)).await;
        info = engine.info().await;
    }
    info.unwrap();
    drop(engine);
    eventually_async(|| sshd.clients().is_empty()).await;
}

#[tokio::test]
async fn an_engine_that_maps_user_ids_does_the_whole_job() {
    let daemon = need!(Daemon::start(Users::Others));
    let engine = daemon.engine().await;
    let image = need!(base::image(&engine).await);
    let site = Site::on(engine, &image);
    let remote = Remote {
        variables: vec![("DOCKER_HOST", daemon.host())],
        server: None,
    };
    expect_job(&site, &remote);
}

/// A provider on the engine at this address of a network, with whatever ralph chooses there.
pub fn at_address(room: &DockerTest, address: &str) -> DockerOptions {
    let mut options = engine::options(room.dir.path());
    let host = format!("tcp://{address}");
    options.engine.env.insert("DOCKER_HOST".to_owned(), host);
    options.seal = SealChoice::Auto;
    options.workspace = WorkspaceChoice::Auto;
    options
}

fn expect_no_volume(engine: &Engine, volumes: &[String]) {
    let left = docker(engine, &["volume", "ls", "--quiet"]);
    let left: Vec<&str> = left
        .lines()
        .filter(|name| volumes.iter().any(|it| it == name))
        .collect();
    assert_eq!(left, [] as [&str; 0]);
}

/// A run without a network, and one whose network is sealed by a relay.
fn expect_whole_job(site: &Site, remote: &Remote) {
    expect_job(site, remote);
    site.allow("allowed.test", "192.0.2.1");
    expect_job(site, remote);
    let mut doctor = site.ralph(&["doctor", "env"]);
    doctor.envs(remote.variables.clone());
    let shown = finish(&mut doctor).stdout;
    let reason = match engine::seal() {
        SealChoice::Relayed => "set by sandbox.docker.seal",
        SealChoice::Auto | SealChoice::Handed => "the engine is on another host",
    };
    assert!(shown.contains(&format!("relayed ({reason})")), "{shown}");
}

fn expect_job(site: &Site, remote: &Remote) {
    let mut command = site.scripted(&script([
        doing([
            run("test \"$(id -u)\" = 1000 && test ! -w /bin/sh"),
            write("a.txt", "hello\n"),
            commit("Begin"),
        ]),
        whole_task(),
    ]));
    command.envs(remote.variables.clone());
    finish(&mut command).expect(0, &["done: "]);
    let branch = site.place.status()["branch"].as_str().unwrap().to_owned();
    assert_eq!(site.place.git(&["show", &format!("{branch}:a.txt")]), "hello\n");
    site.expect_nothing_left();
}

/// Serves the engine at an address of a network, as one of another host is reached, and returns the address.
pub async fn forward(engine: &Engine, tls: Option<TlsAcceptor>) -> String {
    let EngineEndpoint::Unix(socket) = engine.endpoint().clone() else {
        panic!("{} is no socket", engine.endpoint());
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (socket, tls) = (socket.clone(), tls.clone());
            tokio::spawn(async move {
                match tls {
                    None => pass(client, &socket).await,
                    Some(tls) => match tls.accept(client).await {
                        Ok(client) => pass(client, &socket).await,
                        Err(error) => println!("a client was refused: {error}"),
                    },
                }
            });
        }
    });
    address
}

async fn pass(mut client: impl AsyncRead + AsyncWrite + Unpin, socket: &Path) {
    let mut engine = UnixStream::connect(socket).await.unwrap();
    // A client that goes away is no failure.
    let _ = copy_bidirectional(&mut client, &mut engine).await;
}

/// Writes the files of a client, and returns the server that accepts only that one.
fn mutual_tls(dir: &Path) -> TlsAcceptor {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let signed = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let ((server, server_key), (client, client_key)) = (signed(&["127.0.0.1"]), signed(&["ralph"]));
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("ca.pem"), issuer.pem()).unwrap();
    fs::write(dir.join("cert.pem"), client.pem()).unwrap();
    fs::write(dir.join("key.pem"), client_key.serialize_pem()).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![server.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der())),
        );
    TlsAcceptor::from(Arc::new(config.unwrap()))
}
