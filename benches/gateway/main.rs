//! What the gateway costs: latency, requests per second, a long download, memory, against squid and mitmproxy; and the
//! first command behind it, against `docker run`.
//! `benches/run gateway` runs it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(missing_docs, reason = "nothing here is called by others")]

#[path = "../loop/figure.rs"]
#[allow(dead_code, reason = "the loop needs more of it")]
mod figure;
mod latency;
mod memory;
mod origin;
mod peers;
mod rate;
mod route;
mod sealed;
mod serve;
#[path = "../exec/stage.rs"]
mod stage;
mod tunnel;

use std::error::Error;
use std::path::{Path, PathBuf};

use figure::results::{Results, Tool};
use peers::Peers;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    // Two threads, as the command line has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [role, count, file] if role == serve::ROLE => {
            runtime.block_on(serve::serve(count.parse()?, file.as_ref()))
        }
        _ => runtime.block_on(measure(&args)),
    }
}

fn tools(peers: &Path) -> [Tool; 3] {
    let squid = peers.join("squid");
    let libraries = format!(
        "LD_LIBRARY_PATH={0}/usr/lib/{1}-linux-gnu:{0}/usr/lib",
        squid.display(),
        std::env::consts::ARCH
    );
    let program = squid.join("usr/sbin/squid").display().to_string();
    [
        Tool::docker(),
        Tool::by("squid", ["env".to_owned(), libraries, program, "-v".to_owned()]),
        Tool::at("mitmproxy", &peers.join("mitmproxy/bin/mitmdump")),
    ]
}

/// Measures everything, or what the arguments name.
async fn measure(args: &[String]) -> Fallible<()> {
    let named: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let wanted = |name: &str| named.is_empty() || named.iter().any(|one| *one == name);
    let dir = args.iter().find_map(|arg| arg.strip_prefix("--peers="));
    let dir = PathBuf::from(dir.ok_or("`--peers=DIR` must be what benches/gateway/install prints")?);
    let mut results = Results::begin("gateway", &tools(&dir));
    let peers = Peers::start(&dir).await?;
    if wanted("latency") {
        results.report(latency::measure(&peers).await?)?;
    }
    if wanted("rate") {
        results.report(rate::measure(&peers).await?)?;
    }
    if wanted("tunnel") {
        results.report(tunnel::measure(&peers).await?)?;
    }
    if wanted("memory") {
        results.report(memory::measure(&peers).await?)?;
    }
    if wanted("sealed") {
        results.report(sealed::measure().await?)?;
    }
    Ok(())
}
