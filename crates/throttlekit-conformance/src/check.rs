//! The result of a check.

/// `Ok`, or a description of the violated guarantee.
pub type Check = Result<(), String>;

/// Returns `Ok` if the guarantee holds, else the problem.
pub fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(problem()) }
}
