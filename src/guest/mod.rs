//! The guest: a small static program that ralph puts into a sandbox. It runs commands over a warm session
//! (`guest session`, see [`crate::sandbox::session`]), owns the network of a sealed sandbox (`guest hold`), relays its
//! connections (`guest relay`) and runs probes from inside (`guest probe`).
//!
//! `build.rs` compiles it from the other files of this directory; it uses the standard library only. The files that
//! define the protocols (`frame`, `message`, `holder_protocol`, `relay_protocol`) are compiled into ralph and into the guest.
//!
//! To use it, put [`PROGRAM`] into a sandbox and run it with the argument `session`. Its standard input and output are
//! the stream for [`crate::sandbox::session::WarmSession::open`]. If the file belongs to another user and has mode `0111`
//! (execute, not read), the kernel denies other processes access to the guest's memory from the first instruction on.
//! Otherwise the guest denies it itself shortly after it started.

#[allow(dead_code, reason = "each end of a session uses one half of it")]
pub(crate) mod frame;
#[allow(dead_code, reason = "each end uses one half of it")]
pub(crate) mod holder_protocol;
#[allow(dead_code, reason = "each end of a session uses one half of it")]
pub(crate) mod message;
#[allow(dead_code, reason = "each end uses one half of it")]
pub(crate) mod relay_protocol;

/// The guest for Linux on the processor architecture that ralph was built for. `None` if it could not be built; commands
/// then need another way into the sandbox.
pub const PROGRAM: Option<&[u8]> = BUILT;

/// A hash of the guest's source. A session with a guest of another version is refused.
pub const VERSION: u64 = message::VERSION;

#[cfg(guest)]
const BUILT: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/guest")));

#[cfg(not(guest))]
const BUILT: Option<&[u8]> = None;
