//! Engines whose containers cannot have a workspace of this machine are refused before anything is made, with the cause
//! and what to do about it.

use ralph::engine::EngineEndpoint;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};

use crate::daemon::{Daemon, Users};
use crate::need;
use crate::site::Site;
use crate::support::base;
use crate::support::ralph::{finish, script, whole_task};

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_of_another_machine_is_refused() {
    let site = need!(Site::new().await);
    let address = far_away(site.engine.endpoint()).await;
    let cause = format!("the engine at {address} is not on this host");
    expect_refused(&site, &address, &[&cause, "hint: use an engine on this host"]);
}

#[tokio::test]
async fn an_engine_that_gives_users_other_numbers_is_refused() {
    let daemon = need!(Daemon::start(Users::Others));
    let site = Site::on(daemon.engine().await, base::NAME);
    expect_refused(
        &site,
        &daemon.host(),
        &["(`userns-remap`)", "hint: use a rootless engine"],
    );
}

fn expect_refused(site: &Site, engine: &str, said: &[&str]) {
    for mut command in [site.ralph(&["selftest"]), site.scripted(&script([whole_task()]))] {
        let ended = finish(command.env("DOCKER_HOST", engine));
        ended.expect(
            1,
            &["cannot share a workspace with the containers of this engine"],
        );
        ended.expect(1, said);
    }
    site.expect_nothing_left();
}

/// The same engine at an address of a network, as one of another machine is reached.
async fn far_away(engine: &EngineEndpoint) -> String {
    let EngineEndpoint::Unix(socket) = engine.clone() else {
        panic!("{engine} is no socket");
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
    });
    address
}
