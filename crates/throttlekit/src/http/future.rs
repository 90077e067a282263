//! One request passing through the layer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::AdmissionBody;
use super::fallback::Fallback;
use super::plan::Plan;
use super::refusal::Refusal;
use super::settings::{Delay, Settings};
use super::stamp::Stamp;
use crate::admit::{Admission, Admitting, Axis, SharedPermit, StoreError};
use crate::rate::Timestamp;
use crate::{Decision, Guarantee, Retry};

pin_project! {
    /// Future of the response of [`AdmissionService`](super::AdmissionService).
    ///
    /// If dropped before that, the permit is ignored, or the request leaves the queue.
    pub struct AdmissionFuture<S, B, R>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        step: Step<S, B, R>,
    }
}

pin_project! {
    /// State of the request.
    #[project = StepProjected]
    pub(super) enum Step<S, B, R>
    where
        S: Service<Request<B>>,
    {
        // Asking => Delayed | Serving | Refused
        Asking { admitting: Admitting, timer: Option<Delay>, waiting: Option<Waiting<S, B>> },
        // Delayed => Serving
        Delayed { delay: Delay, waiting: Option<Waiting<S, B>>, admission: Option<Admission> },
        // Serving => done
        Serving {
            #[pin] response: S::Future,
            stamp: Stamp,
            permit: Option<SharedPermit>,
            settings: Arc<Settings>,
        },
        // Refused => done
        Refused { response: Option<Response<AdmissionBody<R>>> },
    }
}

impl<S: Service<Request<B>>, B, R> AdmissionFuture<S, B, R> {
    pub(super) fn new(step: Step<S, B, R>) -> Self {
        Self { step }
    }
}

impl<S: Service<Request<B>>, B, R> Step<S, B, R> {
    pub(super) fn asking(admitting: Admitting, waiting: Waiting<S, B>) -> Self {
        let timer = waiting.settings.wait.as_ref().map(|wait| wait());
        Self::Asking { admitting, timer, waiting: Some(waiting) }
    }

    pub(super) fn serving(
        mut service: S,
        mut request: Request<B>,
        stamp: Stamp,
        permit: SharedPermit,
        settings: Arc<Settings>,
    ) -> Self {
        stamp.mark(request.extensions_mut());
        Self::Serving { response: service.call(request), stamp, permit: Some(permit), settings }
    }
}

impl<S, B, R> Future for AdmissionFuture<S, B, R>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data: From<String>>,
{
    type Output = Result<Response<AdmissionBody<R>>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let next = match self.as_mut().project().step.project() {
                StepProjected::Asking { admitting, timer, waiting } => {
                    match (Pin::new(admitting).poll(cx), timer) {
                        (Poll::Ready(result), _) => taken(waiting).answered(result),
                        (Poll::Pending, Some(timer)) => {
                            ready!(timer.as_mut().poll(cx));
                            taken(waiting).timed_out()
                        }
                        (Poll::Pending, None) => return Poll::Pending,
                    }
                }
                StepProjected::Delayed { delay, waiting, admission } => {
                    ready!(delay.as_mut().poll(cx));
                    taken(waiting).serve_decided(taken(admission))
                }
                StepProjected::Serving { response, stamp, permit, settings } => {
                    // Moved out of the future, which may outlive a caught panic; on the stack it does not.
                    let held = permit.take();
                    return match response.poll(cx) {
                        Poll::Ready(answer) => Poll::Ready(served(answer, stamp, held, settings)),
                        Poll::Pending => {
                            *permit = held;
                            Poll::Pending
                        }
                    };
                }
                StepProjected::Refused { response } => return Poll::Ready(Ok(taken(response))),
            };
            self.as_mut().project().step.set(next);
        }
    }
}

/// The request, and everything that is needed once the decision is there.
pub(super) struct Waiting<S, B> {
    pub(super) service: S,
    pub(super) request: Request<B>,
    pub(super) settings: Arc<Settings>,
    pub(super) plan: Plan,
}

impl<S: Service<Request<B>>, B> Waiting<S, B> {
    pub(super) fn answered<R>(self, result: Result<Admission, StoreError>) -> Step<S, B, R> {
        let mut admission = match result {
            Ok(admission) => admission,
            Err(error) => return self.undecided(error),
        };
        match (admission.outage.take(), admission.guarantee) {
            // Nothing was counted, so there are no numbers to report.
            (Some(outage), Guarantee::Open) if admission.allowed => {
                let permit = admission.permit.unwrap_or(SharedPermit::none());
                self.serve(Stamp::Open(outage), permit)
            }
            // The client gets an outage, not a limit.
            (Some(outage), Guarantee::Closed) if !admission.allowed => self.undecided(outage),
            _ if !admission.allowed => self.denied(&admission),
            _ => self.admitted(admission),
        }
    }

    fn admitted<R>(self, admission: Admission) -> Step<S, B, R> {
        match (admission.retry_after, &self.settings.delay) {
            (Retry::After(turn), Some(delay)) => {
                Step::Delayed { delay: delay(turn), waiting: Some(self), admission: Some(admission) }
            }
            _ => self.serve_decided(admission),
        }
    }

    fn denied<R>(self, admission: &Admission) -> Step<S, B, R> {
        let stamp = self.decided(admission);
        let axis = admission.denied_by().unwrap_or(Axis::Rate);
        match axis {
            Axis::Price => self.refused(Refusal::Priced, &stamp),
            Axis::Concurrency => self.refused(Refusal::Full(admission.decision), &Stamp::Uncounted),
            _ => {
                let name = self.plan.name_of(axis);
                self.refused(Refusal::Denied(&name, admission.decision), &stamp)
            }
        }
    }

    /// Rejects a request that has waited for a slot as long as it may.
    fn timed_out<R>(self) -> Step<S, B, R> {
        let limits = self.plan.admit().limits();
        let Some(slots) = limits.iter().find(|limit| limit.axis == Axis::Concurrency) else {
            return self.refused(Refusal::Undecided, &Stamp::Uncounted);
        };
        let full = Decision {
            allowed: false,
            limit: slots.units,
            remaining: 0,
            reset_at: Timestamp::EPOCH,
            retry_after: Retry::OnRelease,
        };
        self.refused(Refusal::Full(full), &Stamp::Uncounted)
    }

    fn undecided<R>(self, error: StoreError) -> Step<S, B, R> {
        match (self.settings.on_error)(&error) {
            Fallback::Allow => self.serve(Stamp::Open(error), SharedPermit::none()),
            Fallback::Reject => self.refused(Refusal::Undecided, &Stamp::Uncounted),
        }
    }

    fn serve_decided<R>(self, mut admission: Admission) -> Step<S, B, R> {
        let permit = admission.permit.take().unwrap_or(SharedPermit::none());
        let stamp = self.decided(&admission);
        self.serve(stamp, permit)
    }

    fn serve<R>(self, stamp: Stamp, permit: SharedPermit) -> Step<S, B, R> {
        Step::serving(self.service, self.request, stamp, permit, self.settings)
    }

    fn refused<R>(self, refusal: Refusal<'_>, stamp: &Stamp) -> Step<S, B, R> {
        let mut response = refusal.answer(self.request.headers(), self.settings.retry_jitter);
        stamp.mark_response(&mut response);
        Step::Refused { response: Some(response) }
    }

    fn decided(&self, admission: &Admission) -> Stamp {
        Stamp::Decided { axes: admission.axes, plan: self.plan.clone(), style: self.settings.style }
    }
}

/// Returns the response with the permit in its body. An error means that the backend has failed.
fn served<R: Body<Data: From<String>>, E>(
    answer: Result<Response<R>, E>,
    stamp: &Stamp,
    permit: Option<SharedPermit>,
    settings: &Arc<Settings>,
) -> Result<Response<AdmissionBody<R>>, E> {
    let permit = permit.unwrap_or(SharedPermit::none());
    let (parts, body) = match answer {
        Ok(response) => response.into_parts(),
        Err(error) => {
            permit.dropped();
            return Err(error);
        }
    };
    let body = AdmissionBody::holding(&parts, body, permit, settings);
    let mut response = Response::from_parts(parts, body);
    stamp.mark_response(&mut response);
    Ok(response)
}

fn taken<T>(held: &mut Option<T>) -> T {
    held.take().expect("a future is not polled again after it is done")
}

debug_fields!([S: Service<Request<B>>, B, R] AdmissionFuture<S, B, R>);
