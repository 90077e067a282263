//! The result of a check.

/// `Ok`, or a description of the violated guarantee.
pub type Check = Result<(), String>;

/// Returns `Ok` if the guarantee holds, else the counterexample.
pub fn ensure(holds: bool, story: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(story()) }
}
