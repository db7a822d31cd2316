//! Several futures in one task.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

/// Drives all futures to their ends and gives the results in order. A wake of the task polls every
/// future that has not ended: meant for the few parts of one request, not for crowds.
pub(crate) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut parts: Vec<Part<F>> = futures.into_iter().map(|f| Part::Going(Box::pin(f))).collect();
    poll_fn(|context| {
        let mut going = false;
        for part in &mut parts {
            if let Part::Going(future) = part {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *part = Part::Ended(output),
                    Poll::Pending => going = true,
                }
            }
        }
        if going { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    parts.into_iter().map(Part::output).collect()
}

/// Ends when either future does, and drops the other.
pub(crate) async fn first_of<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|context| match one.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(output),
        Poll::Pending => other.as_mut().poll(context),
    })
    .await
}

enum Part<F: Future> {
    Going(Pin<Box<F>>),
    Ended(F::Output),
}

impl<F: Future> Part<F> {
    fn output(self) -> F::Output {
        match self {
            Self::Ended(output) => output,
            Self::Going(_) => unreachable!("join_all waits for every part"),
        }
    }
}
