//! The guest: a small static program of ralph's own that runs commands inside a sandbox (see [`crate::sandbox::session`]),
//! holds its network (`hold`), and tries out from inside what can be reached (`probe`).
//!
//! It is a program of its own, made from the other files of this folder by `build.rs`, and uses nothing but the standard
//! library. What both ends must agree on (`frame`, `message`, `order`, `version`) is compiled into both.
//!
//! To use it, put [`PROGRAM`] into a sandbox and run it with the argument `session`; its standard input and output are
//! the stream for [`crate::sandbox::session::Session::open`]. A file that belongs to another user and may be executed but
//! not read (mode `0111`) makes the system close the guest to its sandbox from its first instruction; otherwise it
//! closes itself a moment later.

#[allow(dead_code, reason = "each end of a session uses one half of it")]
pub(crate) mod frame;
#[allow(dead_code, reason = "each end of a session uses one half of it")]
pub(crate) mod message;
#[allow(dead_code, reason = "each end uses one half of it")]
pub(crate) mod order;
pub(crate) mod version;

/// The program, for Linux on the processor that ralph itself was built for. `None` when ralph was built where it could
/// not be made; then commands need another way into the sandbox.
pub const PROGRAM: Option<&[u8]> = BUILT;

/// Differs whenever the program does. A session with a guest of another version is refused.
pub const VERSION: u64 = version::VERSION;

#[cfg(guest)]
const BUILT: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/guest")));

#[cfg(not(guest))]
const BUILT: Option<&[u8]> = None;
