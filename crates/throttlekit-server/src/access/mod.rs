//! Who may ask what.

mod caller;
mod principal;
mod spec;

pub use caller::{Caller, Door};
pub use principal::Principal;
pub use spec::AccessSpec;
