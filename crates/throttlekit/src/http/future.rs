//! One request passing through the layer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admit::{Admit, AdmitError};
use super::body::AdmitBody;
use super::choice::OnFailure;
use super::layer::{Delay, Settings};
use super::plan::Terms;
use super::refusal::Refusal;
use super::stamp::Stamp;
use crate::{Decision, Retry};

pin_project! {
    /// Future of the response of [`AdmitService`](super::AdmitService).
    pub struct AdmitFuture<A, S, B, R>
    where
        A: Admit,
        S: Service<Request<B>>,
    {
        #[pin]
        step: Step<A, S, B, R>,
    }
}

pin_project! {
    /// State of the request.
    #[project = StepProjected]
    pub(super) enum Step<A, S, B, R>
    where
        A: Admit,
        S: Service<Request<B>>,
    {
        // Asking => Waiting | Serving | Refused
        Asking { #[pin] answer: A::Answer, held: Option<Held<A, S, B>> },
        // Waiting => Serving
        Waiting { delay: Delay, held: Option<Held<A, S, B>>, decision: Decision },
        // Serving => done
        Serving { #[pin] response: S::Future, stamp: Stamp },
        // Refused => done
        Refused { response: Option<Response<AdmitBody<R>>> },
    }
}

impl<A: Admit, S: Service<Request<B>>, B, R> AdmitFuture<A, S, B, R> {
    pub(super) fn new(step: Step<A, S, B, R>) -> Self {
        Self { step }
    }
}

impl<A, S, B, R> Future for AdmitFuture<A, S, B, R>
where
    A: Admit,
    S: Service<Request<B>, Response = Response<R>>,
{
    type Output = Result<Response<AdmitBody<R>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project().step.project() {
                StepProjected::Asking { answer, held } => {
                    let answer = ready!(answer.poll(cx));
                    taken(held).answered(answer)
                }
                StepProjected::Waiting { delay, held, decision } => {
                    ready!(delay.as_mut().poll(cx));
                    taken(held).serve_decided(*decision)
                }
                StepProjected::Serving { response, stamp } => {
                    let response = ready!(response.poll(cx))?;
                    let mut response = response.map(AdmitBody::service);
                    stamp.mark_response(&mut response);
                    return Poll::Ready(Ok(response));
                }
                StepProjected::Refused { response } => return Poll::Ready(Ok(taken(response))),
            };
            self.as_mut().project().step.set(next);
        }
    }
}

/// The request, and everything that is needed once the decision is there.
pub(super) struct Held<A, S, B> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) settings: Arc<Settings<A>>,
    pub(super) terms: Arc<Terms>,
}

impl<A: Admit, S: Service<Request<B>>, B> Held<A, S, B> {
    fn answered<R>(self, answer: Result<Decision, AdmitError>) -> Step<A, S, B, R> {
        match answer {
            Ok(decision) if decision.allowed => self.admitted(decision),
            Ok(decision) => self.denied(decision),
            Err(error) if error.passes() => self.serve(Stamp::Open(error)),
            Err(error) => match self.settings.failure.choose(&error) {
                OnFailure::Open => self.serve(Stamp::Open(error)),
                OnFailure::Closed => self.refused(&Refusal::Undecided, &Stamp::Uncounted),
            },
        }
    }

    fn admitted<R>(self, decision: Decision) -> Step<A, S, B, R> {
        match (decision.retry_after, &self.settings.delay) {
            (Retry::After(turn), Some(delay)) => {
                Step::Waiting { delay: delay(turn), held: Some(self), decision }
            }
            _ => self.serve_decided(decision),
        }
    }

    fn denied<R>(self, decision: Decision) -> Step<A, S, B, R> {
        let stamp = self.decided(decision);
        let terms = Arc::clone(&self.terms);
        self.refused(&Refusal::Denied(&terms, decision), &stamp)
    }

    fn serve_decided<R>(self, decision: Decision) -> Step<A, S, B, R> {
        let stamp = self.decided(decision);
        self.serve(stamp)
    }

    fn serve<R>(mut self, stamp: Stamp) -> Step<A, S, B, R> {
        stamp.mark(self.request.extensions_mut());
        Step::Serving { response: self.service.call(self.request), stamp }
    }

    fn refused<R>(self, refusal: &Refusal<'_>, stamp: &Stamp) -> Step<A, S, B, R> {
        let mut response = refusal.answer(self.request.headers());
        stamp.mark_response(&mut response);
        Step::Refused { response: Some(response) }
    }

    fn decided(&self, decision: Decision) -> Stamp {
        Stamp::Decided { decision, terms: Arc::clone(&self.terms), style: self.settings.style }
    }
}

fn taken<T>(held: &mut Option<T>) -> T {
    held.take().expect("a future is not polled again after it is done")
}

debug_fields!([A: Admit, S: Service<Request<B>>, B, R] AdmitFuture<A, S, B, R>);
