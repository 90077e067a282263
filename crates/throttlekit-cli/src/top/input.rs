//! Keyboard input.

use std::thread;

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use super::board::{Input, Press};

/// Sends key presses from a thread of its own, which ends with the process.
pub(super) fn listen(told: mpsc::Sender<Input>) {
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            let input = match event {
                Event::Key(key) if key.kind == KeyEventKind::Press => meaning(key.code, key.modifiers),
                Event::Resize(..) => Some(Input::Resized),
                _ => None,
            };
            if input.is_some_and(|input| told.blocking_send(input).is_err()) {
                return;
            }
        }
    });
}

fn meaning(code: KeyCode, with: KeyModifiers) -> Option<Input> {
    Some(Input::Press(match code {
        KeyCode::Char('c') if with.contains(KeyModifiers::CONTROL) => Press::Quit,
        KeyCode::Char('q') => Press::Quit,
        KeyCode::Esc => Press::Back,
        KeyCode::Char('p' | ' ') => Press::Pause,
        KeyCode::Char('?' | 'h') => Press::Help,
        KeyCode::Up | KeyCode::Char('k') => Press::Move(-1),
        KeyCode::Down | KeyCode::Char('j') => Press::Move(1),
        KeyCode::PageUp => Press::Move(-10),
        KeyCode::PageDown => Press::Move(10),
        KeyCode::Home | KeyCode::Char('g') => Press::Move(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => Press::Move(isize::MAX),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_ends_it_with_control_alone() {
        assert_eq!(meaning(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Input::Press(Press::Quit)));
        assert_eq!(meaning(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(meaning(KeyCode::PageDown, KeyModifiers::NONE), Some(Input::Press(Press::Move(10))));
    }
}
