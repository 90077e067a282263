//! Learners: small online algorithms that choose a number, observe its cost, and choose again.
//!
//! They are written once and used wherever something has to be sized: a lease, a reservation. Here and only here the
//! core computes in floats, because a learner decides nothing. It chooses how much to request; admission is counted in
//! integers by a rule, and holds for any output of a learner (guarantee `learn`).
//!
//! * [`AdaGrad`] follows the gradient of a convex loss over an interval, whatever the scale of the gradients.
//! * [`Descent`] does the same where it is known how steep a loss can be.
//! * [`Hedge`] weighs experts by what following each of them would have cost.
//! * [`Reservation`] combines the last two: the number of tokens to reserve for a stream of unknown length.
//!
//! Each is a few machine words of plain state, and never fails: an input that is not a finite number is ignored.

mod ada_grad;
mod descent;
mod hedge;
mod reservation;

pub use ada_grad::AdaGrad;
pub use descent::Descent;
pub use hedge::Hedge;
pub use reservation::{Reservation, ReservationError, ReservationOptions};
