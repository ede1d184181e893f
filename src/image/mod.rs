//! The images that sandboxes start from.

pub mod load;
