//! The memory of one process that serves many sandboxes.

use super::Fallible;
use super::figure::{Figure, MEDIAN, Samples, Target};
use super::peers::Peers;

const SANDBOXES: usize = 100;

/// Each of them has all its doors and a connection that was used and is open.
pub(crate) async fn measure(peers: &Peers) -> Fallible<Vec<Figure>> {
    let gateways = peers.gateways(SANDBOXES).await?;
    let mut open = Vec::new();
    for route in &gateways.routes {
        let mut connection = route.connect().await?;
        connection.get().await?;
        open.push(connection);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateways.process))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let resident: f64 = kilobytes.ok_or("no VmRSS")?.trim().parse()?;
    Ok(vec![Figure {
        name: "100-sandboxes-memory",
        unit: "MB",
        at: MEDIAN,
        ours: Samples::one(resident / 1000.0),
        peer: None,
        target: Target::Most(100.0),
    }])
}
