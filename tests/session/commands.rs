//! Commands over a session: what they get and how they end.

use ralph::exec::Status;

use crate::room::Room;

#[tokio::test]
async fn a_command_runs() {
    let room = crate::need!(Room::open().await);
    let exit = room.shell("echo out; echo err >&2; exit 3").await;
    assert_eq!(exit.status, Status::Code(3));
    assert_eq!(
        (exit.stdout.text(), exit.stderr.text()),
        ("out\n".into(), "err\n".into())
    );
}
