//! Every way to receive, compared with the reference.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use doorbell::ring::{Batch, Lagged, RecvError, RecvTimeoutError, TryRecvError};
use futures::Stream;
use testkit::threads::poll_once;
use testkit::tracked::Tracked;

use crate::harness::Follower;
use crate::model::{Answer, Ledger};
use crate::ops::Form;

/// Converts the result of a receive to the reference's type.
pub(crate) fn answer(result: Result<(u64, Tracked), TryRecvError>) -> Answer {
    match result {
        Ok((seq, value)) => Answer::Value { seq, id: value.id() },
        Err(TryRecvError::Empty) => Answer::Empty,
        Err(TryRecvError::Closed) => Answer::Closed,
        Err(TryRecvError::Lagged(lagged)) => Answer::Lagged(lagged),
    }
}

fn patient(error: RecvError) -> TryRecvError {
    match error {
        RecvError::Lagged(lagged) => TryRecvError::Lagged(lagged),
        RecvError::Closed => TryRecvError::Closed,
    }
}

fn timed(error: RecvTimeoutError) -> TryRecvError {
    match error {
        RecvTimeoutError::Timeout => TryRecvError::Empty,
        RecvTimeoutError::Lagged(lagged) => TryRecvError::Lagged(lagged),
        RecvTimeoutError::Closed => TryRecvError::Closed,
    }
}

fn polled<T>(poll: Poll<Result<T, RecvError>>) -> Result<T, TryRecvError> {
    match poll {
        Poll::Pending => Err(TryRecvError::Empty),
        Poll::Ready(result) => result.map_err(patient),
    }
}

/// Converts an item of an iterator or stream. The caller passes what its end means.
fn item_answer(item: Option<Result<u64, Lagged>>, seq: u64, end: Answer) -> Answer {
    match item {
        Some(Ok(id)) => Answer::Value { seq, id },
        Some(Err(lagged)) => Answer::Lagged(lagged),
        None => end,
    }
}

/// Receives once (iterators and batches: several times) and compares.
pub(crate) fn receive(follower: &mut Follower, ledger: &Ledger, form: Form) {
    let predicted = follower.model.predict(ledger);
    // A blocking receive on an empty channel without other threads would never return.
    let would_block = predicted == Answer::Empty;
    // Receives that do not return the seq are compared with the predicted one.
    let seq = match predicted {
        Answer::Value { seq, .. } => seq,
        _ => 0,
    };
    let real = &mut follower.real;
    let with_seq = |value: Tracked| (seq, value);
    let result = match form {
        Form::Blocking | Form::BlockingRef | Form::BlockingBatch { .. } | Form::Iter(_) if would_block => {
            real.try_recv_seq()
        }
        Form::TrySeq => real.try_recv_seq(),
        Form::Try => real.try_recv().map(with_seq),
        Form::Poll => polled(real.poll_recv(&mut Context::from_waker(Waker::noop()))).map(with_seq),
        Form::Future => polled(poll_once(real.recv())).map(with_seq),
        Form::FutureSeq => polled(poll_once(real.recv_seq())),
        Form::Blocking => real.recv_blocking().map(with_seq).map_err(patient),
        Form::Timeout => real.recv_timeout(Duration::ZERO).map(with_seq).map_err(timed),
        Form::Deadline => real.recv_deadline(Instant::now()).map(with_seq).map_err(timed),
        Form::TryRef => real.try_recv_ref().map(|held| (held.seq(), (*held).clone())),
        Form::FutureRef => polled(poll_once(real.recv_ref()).map_ok(|held| (held.seq(), (*held).clone()))),
        Form::BlockingRef => real
            .recv_ref_blocking()
            .map(|held| (held.seq(), (*held).clone()))
            .map_err(patient),
        Form::TryBatch { max, take } => return batch(follower, ledger, max, take, |real| real.try_recv_batch(max)),
        Form::FutureBatch { max, take } => {
            return batch(follower, ledger, max, take, |real| {
                polled(poll_once(real.recv_batch(max)))
            });
        }
        Form::BlockingBatch { max, take } => {
            return batch(follower, ledger, max, take, |real| {
                real.recv_batch_blocking(max).map_err(patient)
            });
        }
        Form::TryIter(count) => return try_iter(follower, ledger, count),
        Form::Iter(count) => return iter(follower, ledger, count),
        Form::Lossy => return lossy(follower, ledger),
        Form::Stream(count) => return stream(follower, ledger, count),
    };
    follower.accept(ledger, answer(result));
}

type Batched<'a> = Result<Batch<'a, Tracked>, TryRecvError>;

fn batch(
    follower: &mut Follower,
    ledger: &Ledger,
    max: usize,
    take: usize,
    open: impl for<'a> FnOnce(&'a mut doorbell::ring::Subscriber<Tracked>) -> Batched<'a>,
) {
    let predicted = follower.model.predict(ledger);
    let ahead = follower.model.values_ahead(ledger, max.min(64));
    let got = match open(&mut follower.real) {
        Ok(mut batch) => {
            let mut got: Vec<(u64, u64)> = Vec::new();
            // Half with each of the two ways to step, or as a fold if all is taken.
            got.extend((0..take / 2).map_while(|_| batch.next_seq().map(|(seq, value)| (seq, value.id()))));
            let so_far = got.len();
            if so_far == take / 2 {
                let seqs = ahead.iter().skip(so_far).map(|(seq, _)| *seq);
                if take >= max {
                    let folded = batch.fold(Vec::new(), |mut ids, value| {
                        ids.push(value.id());
                        ids
                    });
                    got.extend(seqs.zip(folded));
                } else {
                    got.extend(seqs.zip(batch.take(take - so_far).map(Tracked::id)));
                }
            }
            if max > 0 {
                assert!(
                    matches!(predicted, Answer::Value { .. }),
                    "a batch although {predicted:?} was predicted"
                );
                assert!(got.len() >= take.min(1), "an empty batch");
            }
            Ok(got)
        }
        Err(error) => Err(error),
    };
    let got = match got {
        Ok(got) => got,
        Err(error) => return follower.accept(ledger, answer(Err(error))),
    };
    assert!(got.len() <= ahead.len(), "more events than available or requested");
    assert_eq!(got, ahead[..got.len()]);
    for (seq, id) in got {
        follower.model.take(Answer::Value { seq, id });
    }
    follower.model.settle(ledger, follower.real.position());
}

fn try_iter(follower: &mut Follower, ledger: &Ledger, count: usize) {
    for _ in 0..count {
        let predicted = follower.model.predict(ledger);
        let item = follower.real.try_iter().next();
        let item = item.map(|result| result.map(|value| value.id()));
        let ended = item.is_none();
        assert_eq!(item_answer(item, seq_of(predicted), end_of(ledger)), predicted);
        follower.accept(ledger, predicted);
        if ended {
            break;
        }
    }
}

fn iter(follower: &mut Follower, ledger: &Ledger, count: usize) {
    for _ in 0..count {
        let predicted = follower.model.predict(ledger);
        if predicted == Answer::Empty {
            break;
        }
        let item = follower.real.iter().next();
        let item = item.map(|result| result.map(|value| value.id()));
        assert_eq!(item_answer(item, seq_of(predicted), Answer::Closed), predicted);
        follower.accept(ledger, predicted);
    }
}

/// Skips lost events silently, and updates the reference.
fn lossy(follower: &mut Follower, ledger: &Ledger) {
    let got = poll_once(follower.real.recv_lossy());
    let mut predicted = follower.model.predict(ledger);
    if let Answer::Lagged(_) = predicted {
        follower.model.take(predicted);
        predicted = follower.model.predict(ledger);
    }
    let seq = seq_of(predicted);
    follower.accept(
        ledger,
        match got {
            Poll::Pending => Answer::Empty,
            Poll::Ready(None) => Answer::Closed,
            Poll::Ready(Some(value)) => Answer::Value { seq, id: value.id() },
        },
    );
}

/// A stream consumes its subscriber, so a clone is converted.
fn stream(follower: &Follower, ledger: &Ledger, count: usize) {
    let fork = follower.fork();
    let (mut model, mut stream) = (fork.model, fork.real.into_stream());
    for _ in 0..count {
        let predicted = model.predict(ledger);
        let item = Pin::new(&mut stream).poll_next(&mut Context::from_waker(Waker::noop()));
        match item {
            Poll::Pending => {
                assert_eq!(predicted, Answer::Empty);
                break;
            }
            Poll::Ready(item) => {
                let item = item.map(|result| result.map(|value| value.id()));
                assert_eq!(item_answer(item, seq_of(predicted), Answer::Closed), predicted);
            }
        }
        model.take(predicted);
    }
}

fn seq_of(answer: Answer) -> u64 {
    match answer {
        Answer::Value { seq, .. } => seq,
        _ => 0,
    }
}

fn end_of(ledger: &Ledger) -> Answer {
    if ledger.closed { Answer::Closed } else { Answer::Empty }
}
