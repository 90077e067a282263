//! Server-sent events, as far as models use them: `event:` and `data:` lines, an empty line after each event.

pub use throttlekit::internals::sse::{DONE, Event, Events, TooLong, event};
