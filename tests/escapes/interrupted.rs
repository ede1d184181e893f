//! The gateway ends during a download.

use std::time::Duration;

use crate::docker_test::prints;
use crate::need;
use crate::sealed::outside;
use crate::world::{ALLOWED, World};

#[tokio::test]
async fn a_download_ends_with_the_gateway_and_requests_work_again_after_a_reopen() {
    let world = need!(World::new().await);
    let sandbox = world.create().await;
    let download = format!(
        "(curl --silent --limit-rate 1M --cacert ca.pem https://{ALLOWED}/big > part; echo $? > ended) > /dev/null 2>&1 & \
         until [ -s part ]; do sleep 0.05; done"
    );
    prints(sandbox.as_ref(), &download).await;
    let (id, asked) = (sandbox.id().to_owned(), world.asked());
    let inside = |line: String| {
        let id = id.clone();
        async move { outside(&["exec", &id, "sh", "-c", &line]).await }
    };
    assert!(!inside("test -e /workspace/ended".to_owned()).await);
    drop(sandbox);
    let mut tries = 0;
    // The download has ended with an error.
    while !inside("test -s /workspace/ended && ! grep -qx 0 /workspace/ended".to_owned()).await {
        tries += 1;
        assert!(tries < 100, "the download goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!inside(format!("curl --insecure --max-time 5 https://{ALLOWED}/hello")).await);
    assert_eq!(world.asked(), asked);
    let again = world
        .room
        .provider
        .reopen(&world.room.spec)
        .await
        .unwrap()
        .unwrap();
    again.start().await.unwrap();
    let next = format!("curl --silent --cacert ca.pem https://{ALLOWED}/hello");
    assert_eq!(prints(again.as_ref(), &next).await, "hello\n");
    again.close().await.unwrap();
    assert!(!outside(&["inspect", &id]).await && !outside(&["inspect", &format!("{id}-net")]).await);
}
