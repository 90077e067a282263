//! The live dashboard in a terminal, or drawn once to a file.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ratatui::backend::TestBackend;
use ratatui::{DefaultTerminal, Terminal};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::board::{Board, Input};
use super::{Args, input, poller, render, svg};

/// Size of an SVG screen, in columns and rows.
const PICTURE: (u16, u16) = (128, 40);

/// Polls the server and shows its state until `q` is pressed.
pub(super) async fn run(args: &Args) -> Result<()> {
    let (told, mut heard) = mpsc::channel(16);
    let watching = tokio::spawn(poller::watch(args.connection.clone(), args.hz, told.clone()));
    let mut board = Board::new(&args.connection.target);
    let done = match &args.svg {
        Some(file) => picture(&mut board, &mut heard, file, Duration::from_secs(args.svg_after)).await,
        None => {
            input::listen(told);
            show(&mut board, &mut heard).await
        }
    };
    watching.abort();
    done
}

/// Redraws after every change, until `q` is pressed or the process is stopped.
async fn show(board: &mut Board, heard: &mut mpsc::Receiver<Input>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    in_terminal(async |terminal| {
        while !board.over() {
            terminal.draw(|frame| render::draw(frame, board))?;
            let input = tokio::select! {
                input = heard.recv() => input,
                _ = terminate.recv() => None,
                _ = interrupt.recv() => None,
                _ = hang_up.recv() => None,
            };
            let Some(input) = input else { break };
            board.take(input);
        }
        Ok(())
    })
    .await
}

/// Takes over the terminal while `work` runs. Restores it, also after an error or a panic.
pub(super) async fn in_terminal(work: impl AsyncFnOnce(&mut DefaultTerminal) -> Result<()>) -> Result<()> {
    ensure!(io::stdout().is_terminal(), "standard output is not a terminal: use --once");
    let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore());
    let mut terminal = terminal.context("cannot set up the terminal: use --once")?;
    let done = work(&mut terminal).await;
    ratatui::restore();
    done
}

/// Watches for a while, and draws the screen once.
async fn picture(
    board: &mut Board,
    heard: &mut mpsc::Receiver<Input>,
    file: &PathBuf,
    wait: Duration,
) -> Result<()> {
    let enough = tokio::time::sleep(wait);
    tokio::pin!(enough);
    loop {
        tokio::select! {
            () = &mut enough => break,
            Some(input) = heard.recv() => board.take(input),
        }
    }
    let mut terminal = Terminal::new(TestBackend::new(PICTURE.0, PICTURE.1))?;
    terminal.draw(|frame| render::draw(frame, board))?;
    let drawn = svg::svg(terminal.backend().buffer());
    std::fs::write(file, drawn).with_context(|| file.display().to_string())
}
