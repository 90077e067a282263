//! Learners: small online algorithms that choose a number, see what it cost, and choose again.
//!
//! They are written once and used wherever something has to be sized: a lease, a reservation. Here and only here
//! the core computes in floats, because a learner decides nothing. It says how much to ask for; what may pass is
//! counted in integers by a rule, and holds whatever a learner says (law `learn`).
//!
//! * [`AdaGrad`] follows the gradient of a convex loss over an interval, whatever the scale of the gradients.
//! * [`Descent`] does the same where it is known how steep a loss can be.
//! * [`Hedge`] weighs experts by what following each of them would have cost.
//! * [`Reservation`] is made of the last two: how many tokens to set aside for a stream of unknown length.
//!
//! Each is a few words of plain state, and never fails: an input that is not a finite number is ignored.

mod ada_grad;
mod descent;
mod hedge;
mod reservation;

pub use ada_grad::AdaGrad;
pub use descent::Descent;
pub use hedge::Hedge;
pub use reservation::{Reservation, ReservationError, ReservationOptions};
