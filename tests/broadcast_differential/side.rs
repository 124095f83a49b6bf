//! One side of the comparison, written once for both channels.

use std::cell::Cell;

use testkit::panics::planned_panic;
use testkit::tracked::Tracked;

thread_local! {
    static CLONES_PANIC: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` while every clone of a value panics.
pub(crate) fn with_panicking_clones<R>(body: impl FnOnce() -> R) -> R {
    CLONES_PANIC.set(true);
    let result = body();
    CLONES_PANIC.set(false);
    result
}

/// A message that is counted while it lives.
#[derive(Debug)]
pub(crate) struct Message(pub(crate) Tracked);

impl Clone for Message {
    fn clone(&self) -> Self {
        if CLONES_PANIC.get() {
            planned_panic();
        }
        Self(self.0.clone())
    }
}

/// The result of an operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Nothing,
    Sent(usize),
    /// The value was returned.
    Refused(u64),
    Value(u64),
    Empty,
    Pending,
    Lagged(u64),
    Closed,
    Panicked,
    Upgraded(bool),
    Ended,
}

/// Everything that the handles report about the channel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) senders: Vec<(usize, bool, usize, usize, usize)>,
    pub(crate) receivers: Vec<(usize, bool, bool, usize, usize)>,
    pub(crate) weak: Vec<(usize, usize)>,
    /// Which waits have been woken since they were last polled.
    pub(crate) woken: Vec<bool>,
}

macro_rules! side {
    ($name:ident, $($broadcast:tt)+) => {
        mod $name {
            use crate::ops::Op;
            use crate::side::{Message, Seen, State, with_panicking_clones};
            use std::cell::Cell;
            use std::future::{Future, poll_fn};
            use std::panic::{AssertUnwindSafe, catch_unwind};
            use std::pin::{Pin, pin};
            use std::rc::Rc;
            use std::sync::Arc;
            use std::task::{Context, Poll, Waker};
            use testkit::tracked::DropCounter;
            use testkit::wakers::WakeCounter;
            use $($broadcast)+::error::{RecvError, SendError, TryRecvError};
            use $($broadcast)+::{Receiver, Sender, WeakSender, channel};

            /// A future that is kept, with what is needed to cancel it.
            struct Stays<H, R> {
                future: Pin<Box<dyn Future<Output = (H, Option<R>)>>>,
                cancelled: Rc<Cell<bool>>,
                wakes: Arc<WakeCounter>,
                /// How often it had been woken when it was last polled.
                seen: u64,
            }

            impl<H: 'static, R: 'static> Stays<H, R> {
                fn new<F>(future: F, cancelled: Rc<Cell<bool>>) -> Self
                where
                    F: Future<Output = (H, Option<R>)> + 'static,
                {
                    Self {
                        future: Box::pin(future),
                        cancelled,
                        wakes: WakeCounter::new(),
                        seen: 0,
                    }
                }

                fn poll(&mut self) -> Poll<(H, Option<R>)> {
                    self.seen = self.wakes.wakes();
                    let waker = self.wakes.waker();
                    self.future.as_mut().poll(&mut Context::from_waker(&waker))
                }

                /// Whether it has been woken since it was last polled.
                fn is_woken(&self) -> bool {
                    self.wakes.wakes() > self.seen
                }
            }

            type Wait = Stays<Receiver<Message>, Result<Message, RecvError>>;
            type Watch = Stays<Sender<Message>, ()>;

            fn wait(mut receiver: Receiver<Message>) -> Wait {
                let cancelled = Rc::new(Cell::new(false));
                let flag = cancelled.clone();
                let future = async move {
                    let received = {
                        let mut recv = pin!(receiver.recv());
                        poll_fn(|cx| {
                            if flag.get() {
                                return Poll::Ready(None);
                            }
                            recv.as_mut().poll(cx).map(Some)
                        })
                        .await
                    };
                    (receiver, received)
                };
                Stays::new(future, cancelled)
            }

            fn watch(sender: Sender<Message>) -> Watch {
                let cancelled = Rc::new(Cell::new(false));
                let future = async move {
                    sender.closed().await;
                    (sender, Some(()))
                };
                Stays::new(future, cancelled)
            }

            fn received(result: Result<Message, RecvError>) -> Seen {
                match result {
                    Ok(value) => Seen::Value(value.0.id()),
                    Err(RecvError::Lagged(skipped)) => Seen::Lagged(skipped),
                    Err(RecvError::Closed) => Seen::Closed,
                }
            }

            #[derive(Default)]
            pub(crate) struct Side {
                senders: Vec<Sender<Message>>,
                weak: Vec<WeakSender<Message>>,
                receivers: Vec<Receiver<Message>>,
                waits: Vec<Wait>,
                watches: Vec<Watch>,
                sent: u64,
                counter: DropCounter,
            }

            /// The element that `which` selects.
            fn pick<H>(handles: &mut [H], which: usize) -> Option<&mut H> {
                let count = handles.len();
                (count != 0).then(|| &mut handles[which % count])
            }

            fn take<H>(handles: &mut Vec<H>, which: usize) -> Option<H> {
                (!handles.is_empty()).then(|| handles.remove(which % handles.len()))
            }

            impl Side {
                pub(crate) fn new(capacity: usize, with_receiver: bool) -> Self {
                    let (senders, receivers) = if with_receiver {
                        let (sender, receiver) = channel(capacity);
                        (vec![sender], vec![receiver])
                    } else {
                        (vec![Sender::new(capacity)], Vec::new())
                    };
                    Self {
                        senders,
                        receivers,
                        ..Self::default()
                    }
                }

                pub(crate) fn alive(&self) -> usize {
                    self.counter.alive() as usize
                }

                pub(crate) fn receivers(&self) -> usize {
                    self.receivers.len() + self.waits.len()
                }

                pub(crate) fn end(&mut self) {
                    self.senders.clear();
                    self.weak.clear();
                    self.receivers.clear();
                    self.waits.clear();
                    self.watches.clear();
                }

                pub(crate) fn state(&self) -> State {
                    State {
                        senders: self
                            .senders
                            .iter()
                            .map(|tx| {
                                let counts = (tx.receiver_count(), tx.strong_count(), tx.weak_count());
                                (tx.len(), tx.is_empty(), counts.0, counts.1, counts.2)
                            })
                            .collect(),
                        receivers: self
                            .receivers
                            .iter()
                            .map(|rx| {
                                let counts = (rx.sender_strong_count(), rx.sender_weak_count());
                                (rx.len(), rx.is_empty(), rx.is_closed(), counts.0, counts.1)
                            })
                            .collect(),
                        weak: self.weak.iter().map(|weak| (weak.strong_count(), weak.weak_count())).collect(),
                        woken: self
                            .waits
                            .iter()
                            .map(|wait| wait.is_woken())
                            .chain(self.watches.iter().map(|watch| watch.is_woken()))
                            .collect(),
                    }
                }

                pub(crate) fn apply(&mut self, op: &Op) -> Seen {
                    self.try_apply(op).unwrap_or(Seen::Nothing)
                }

                fn try_apply(&mut self, op: &Op) -> Option<Seen> {
                    Some(match *op {
                        Op::Send(which) => {
                            self.sent += 1;
                            let value = Message(self.counter.value(self.sent));
                            match pick(&mut self.senders, which)?.send(value) {
                                Ok(receivers) => Seen::Sent(receivers),
                                Err(SendError(value)) => Seen::Refused(value.0.id()),
                            }
                        }
                        Op::Subscribe(which) => {
                            let receiver = pick(&mut self.senders, which)?.subscribe();
                            self.receivers.push(receiver);
                            Seen::Nothing
                        }
                        Op::CloneSender(which) => {
                            let sender = pick(&mut self.senders, which)?.clone();
                            self.senders.push(sender);
                            Seen::Nothing
                        }
                        Op::DropSender(which) => {
                            drop(take(&mut self.senders, which)?);
                            Seen::Nothing
                        }
                        Op::Downgrade(which) => {
                            let weak = pick(&mut self.senders, which)?.downgrade();
                            self.weak.push(weak);
                            Seen::Nothing
                        }
                        Op::Upgrade(which) => {
                            let upgraded = pick(&mut self.weak, which)?.upgrade();
                            let seen = Seen::Upgraded(upgraded.is_some());
                            self.senders.extend(upgraded);
                            seen
                        }
                        Op::CloneWeak(which) => {
                            let weak = pick(&mut self.weak, which)?.clone();
                            self.weak.push(weak);
                            Seen::Nothing
                        }
                        Op::DropWeak(which) => {
                            drop(take(&mut self.weak, which)?);
                            Seen::Nothing
                        }
                        Op::TryRecv(which) => match pick(&mut self.receivers, which)?.try_recv() {
                            Ok(value) => Seen::Value(value.0.id()),
                            Err(TryRecvError::Empty) => Seen::Empty,
                            Err(TryRecvError::Lagged(skipped)) => Seen::Lagged(skipped),
                            Err(TryRecvError::Closed) => Seen::Closed,
                        },
                        Op::Recv(which) => {
                            let receiver = pick(&mut self.receivers, which)?;
                            match pin!(receiver.recv()).poll(&mut Context::from_waker(Waker::noop())) {
                                Poll::Ready(result) => received(result),
                                Poll::Pending => Seen::Pending,
                            }
                        }
                        Op::RecvPanics(which) => {
                            let receiver = pick(&mut self.receivers, which)?;
                            let attempt = || catch_unwind(AssertUnwindSafe(|| receiver.try_recv()));
                            match with_panicking_clones(attempt) {
                                Err(_) => Seen::Panicked,
                                Ok(Ok(value)) => Seen::Value(value.0.id()),
                                Ok(Err(TryRecvError::Empty)) => Seen::Empty,
                                Ok(Err(TryRecvError::Lagged(skipped))) => Seen::Lagged(skipped),
                                Ok(Err(TryRecvError::Closed)) => Seen::Closed,
                            }
                        }
                        Op::Resubscribe(which) => {
                            let receiver = pick(&mut self.receivers, which)?.resubscribe();
                            self.receivers.push(receiver);
                            Seen::Nothing
                        }
                        Op::DropReceiver(which) => {
                            drop(take(&mut self.receivers, which)?);
                            Seen::Nothing
                        }
                        Op::Wait(which) => {
                            let wait = wait(take(&mut self.receivers, which)?);
                            self.waits.push(wait);
                            self.poll_wait(self.waits.len() - 1)
                        }
                        Op::PollWait(which) => {
                            let count = self.waits.len();
                            (count != 0).then(|| self.poll_wait(which % count))?
                        }
                        Op::CancelWait(which) => {
                            pick(&mut self.waits, which)?.cancelled.set(true);
                            let count = self.waits.len();
                            self.poll_wait(which % count)
                        }
                        Op::DropWait(which) => {
                            drop(take(&mut self.waits, which)?);
                            Seen::Nothing
                        }
                        Op::Watch(which) => {
                            let watch = watch(take(&mut self.senders, which)?);
                            self.watches.push(watch);
                            self.poll_watch(self.watches.len() - 1)
                        }
                        Op::PollWatch(which) => {
                            let count = self.watches.len();
                            (count != 0).then(|| self.poll_watch(which % count))?
                        }
                        Op::DropWatch(which) => {
                            drop(take(&mut self.watches, which)?);
                            Seen::Nothing
                        }
                    })
                }

                fn poll_wait(&mut self, index: usize) -> Seen {
                    match self.waits[index].poll() {
                        Poll::Pending => Seen::Pending,
                        Poll::Ready((receiver, result)) => {
                            drop(self.waits.remove(index));
                            self.receivers.push(receiver);
                            result.map_or(Seen::Nothing, received)
                        }
                    }
                }

                fn poll_watch(&mut self, index: usize) -> Seen {
                    match self.watches[index].poll() {
                        Poll::Pending => Seen::Pending,
                        Poll::Ready((sender, _)) => {
                            drop(self.watches.remove(index));
                            self.senders.push(sender);
                            Seen::Ended
                        }
                    }
                }
            }
        }
    };
}
