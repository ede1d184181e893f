//! The built-in agent: a plain model that answers JSON actions.

mod schema;

pub use schema::{Action, Answer, Claims};
