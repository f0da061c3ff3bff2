//! A future that is polled only when it was woken.
//!
//! The task of a connection is polled for each of its requests and responses. What ends it at last, such as a timer, need not be polled
//! each time.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use pin_project_lite::pin_project;

pin_project! {
    /// Completes with the output of a future, which it polls only the first time and when it was woken.
    pub struct WhenWoken<F> {
        #[pin]
        future: F,
        state: Arc<State>,
    }
}

struct State {
    woken: AtomicBool,
    /// Wakes the task that polls the outer future.
    task: Mutex<Waker>,
}

impl<F> WhenWoken<F> {
    /// Wraps a future.
    pub fn new(future: F) -> WhenWoken<F> {
        let task = Mutex::new(Waker::noop().clone());
        WhenWoken { future, state: Arc::new(State { woken: AtomicBool::new(true), task }) }
    }
}

impl<F: Future> Future for WhenWoken<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        // Before the flag is read: who sets it later wakes this task.
        this.state.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cx.waker());
        match this.state.woken.swap(false, Ordering::AcqRel) {
            true => this.future.poll(&mut Context::from_waker(&Waker::from(this.state.clone()))),
            false => Poll::Pending,
        }
    }
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn it_is_polled_when_it_was_woken_and_wakes_the_task_that_polled_it_last() {
        struct Count(AtomicBool);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let tasks = [(); 2].map(|()| Arc::new(Count(AtomicBool::new(false))));
        let wakers = tasks.clone().map(Waker::from);
        let (sender, mut receiver) = oneshot::channel();
        let polls = Cell::new(0);
        let mut wrapped = pin!(WhenWoken::new(std::future::poll_fn(|cx| {
            polls.set(polls.get() + 1);
            Pin::new(&mut receiver).poll(cx)
        })));
        for waker in [&wakers[0], &wakers[0], &wakers[1]] {
            assert!(wrapped.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        assert_eq!(polls.get(), 1);
        sender.send(7).expect("the receiver exists");
        assert_eq!(tasks.each_ref().map(|task| task.0.load(Ordering::Relaxed)), [false, true]);
        assert_eq!(wrapped.as_mut().poll(&mut Context::from_waker(&wakers[1])), Poll::Ready(Ok(7)));
        assert_eq!(polls.get(), 2);
    }
}
