//! What a check says.

/// Nothing, or what was promised and what happened instead.
pub type Check = Result<(), String>;

/// `Ok` if the promise holds, else the story.
pub fn ensure(holds: bool, story: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(story()) }
}
