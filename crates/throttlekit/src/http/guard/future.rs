//! One request passing through the layer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::GuardBody;
use super::layer::{GRPC_STATUS, Settings};
use crate::guard::{Ending, Full, OwnedPermit};
use crate::http::body::AdmitBody;
use crate::http::grpc;
use crate::http::layer::Delay;
use crate::http::refusal::Refusal;
use crate::{BootClock, Clock};

pin_project! {
    /// Future of the response of [`GuardService`](super::GuardService).
    ///
    /// If dropped before that, it releases the slot, or leaves the queue, and the guard learns nothing.
    pub struct GuardFuture<S, B, R, C = BootClock>
    where
        S: Service<Request<B>>,
        C: Clock,
    {
        #[pin]
        step: Step<S, B, R, C>,
    }
}

type Turn<C> = Pin<Box<dyn Future<Output = Result<OwnedPermit<C>, Full>> + Send>>;

pin_project! {
    /// State of the request.
    #[project = StepProjected]
    pub(super) enum Step<S, B, R, C>
    where
        S: Service<Request<B>>,
        C: Clock,
    {
        // Waiting => Serving | Refused
        Waiting { turn: Turn<C>, timer: Delay, held: Option<Held<S, B, C>> },
        // Serving => done. An exempt request has no slot.
        Serving { #[pin] response: S::Future, slot: Option<OwnedPermit<C>>, settings: Arc<Settings<C>> },
        // Refused => done
        Refused { response: Option<Response<AdmitBody<R>>> },
    }
}

/// The request, and everything that is needed once there is a slot.
pub(super) struct Held<S, B, C: Clock> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) settings: Arc<Settings<C>>,
}

impl<S: Service<Request<B>>, B, R, C: Clock> GuardFuture<S, B, R, C> {
    pub(super) fn new(step: Step<S, B, R, C>) -> Self {
        Self { step }
    }
}

impl<S, B, R, C> Future for GuardFuture<S, B, R, C>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data: From<String>>,
    C: Clock,
{
    type Output = Result<Response<GuardBody<R, C>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project().step.project() {
                StepProjected::Waiting { turn, timer, held } => match turn.as_mut().poll(cx) {
                    Poll::Ready(turn) => taken(held).at_its_turn(turn),
                    Poll::Pending => {
                        ready!(timer.as_mut().poll(cx));
                        taken(held).in_vain()
                    }
                },
                StepProjected::Serving { response, slot, settings } => {
                    // Moved out of the future, which may outlive a caught panic; on the stack it does not.
                    let held = slot.take();
                    return match response.poll(cx) {
                        Poll::Ready(answer) => Poll::Ready(served(answer, held, settings)),
                        Poll::Pending => {
                            *slot = held;
                            Poll::Pending
                        }
                    };
                }
                StepProjected::Refused { response } => {
                    return Poll::Ready(Ok(taken(response).map(GuardBody::without_slot)));
                }
            };
            self.as_mut().project().step.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B, C: Clock> Held<S, B, C> {
    fn at_its_turn<R>(mut self, turn: Result<OwnedPermit<C>, Full>) -> Step<S, B, R, C> {
        match turn {
            Ok(slot) => Step::Serving {
                response: self.service.call(self.request),
                slot: Some(slot),
                settings: self.settings,
            },
            Err(full) => self.refused(full),
        }
    }

    fn in_vain<R>(self) -> Step<S, B, R, C> {
        let (limit, in_flight) = self.settings.guard.snapshot();
        self.refused(Full { limit, in_flight })
    }

    fn refused<R>(self, full: Full) -> Step<S, B, R, C> {
        Step::Refused { response: Some(Refusal::Full(full).answer(self.request.headers())) }
    }
}

/// Returns the response with the slot in its body. An error means that the backend has failed.
fn served<R: Body<Data: From<String>>, E, C: Clock>(
    answer: Result<Response<R>, E>,
    slot: Option<OwnedPermit<C>>,
    settings: &Settings<C>,
) -> Result<Response<GuardBody<R, C>>, E> {
    let response = match answer {
        Ok(response) => response.map(AdmitBody::service),
        Err(error) => {
            slot.into_iter().for_each(OwnedPermit::dropped);
            return Err(error);
        }
    };
    let Some(slot) = slot else { return Ok(response.map(GuardBody::without_slot)) };
    let ending = (settings.ending)(response.status(), response.headers());
    if ending == Ending::Dropped {
        // The backend's refusal is returned at once; its short body needs no slot.
        slot.dropped();
        return Ok(response.map(GuardBody::without_slot));
    }
    let said_in_trailers =
        grpc::content_type(response.headers()).is_some() && !response.headers().contains_key(GRPC_STATUS);
    let trailers = said_in_trailers.then(|| (response.status(), Arc::clone(&settings.ending)));
    Ok(response.map(|body| GuardBody::holding(body, slot, ending, trailers)))
}

fn taken<T>(held: &mut Option<T>) -> T {
    held.take().expect("a future is not polled after it is done")
}

debug_fields!([S: Service<Request<B>>, B, R, C: Clock] GuardFuture<S, B, R, C>);
