//! References and batches that are held while others publish.

use testkit::tracked::Tracked;

use crate::harness::Harness;
use crate::model::Answer;
use crate::receive;

impl Harness {
    pub(crate) fn hold_ref(&mut self, which: usize, publishes: usize) {
        if self.followers.is_empty() {
            return;
        }
        let index = which % self.followers.len();
        let mut follower = self.followers.swap_remove(index);
        let predicted = follower.model.predict(&self.ledger);
        match follower.real.try_recv_ref() {
            Ok(held) => {
                let answer = Answer::Value {
                    seq: held.seq(),
                    id: held.id(),
                };
                assert_eq!(answer, predicted);
                for turn in 0..publishes {
                    self.publish(turn);
                    assert_eq!(
                        Answer::Value {
                            seq: held.seq(),
                            id: held.id()
                        },
                        answer,
                        "changed while held"
                    );
                }
            }
            Err(error) => assert_eq!(receive::answer(Err(error)), predicted),
        }
        // Events published in the meantime do not change what the receive had to return.
        follower.model.take(predicted);
        follower.model.settle(&self.ledger, follower.real.position());
        self.followers.push(follower);
    }

    pub(crate) fn hold_batch(&mut self, which: usize, max: usize, before: usize, publishes: usize, after: usize) {
        if self.followers.is_empty() {
            return;
        }
        let index = which % self.followers.len();
        let mut follower = self.followers.swap_remove(index);
        let predicted = follower.model.predict(&self.ledger);
        match follower.real.try_recv_batch(max) {
            Ok(mut batch) => {
                assert!(
                    matches!(predicted, Answer::Value { .. }),
                    "a batch although {predicted:?} was predicted"
                );
                let mut held: Vec<(u64, &Tracked)> = Vec::new();
                held.extend((0..before).map_while(|_| batch.next_seq()));
                assert!(held.len() >= before.min(1), "an empty batch");
                (0..publishes).for_each(|turn| self.publish(turn));
                held.extend((0..after).map_while(|_| batch.next_seq()));
                drop(batch);
                (0..publishes % 7).for_each(|turn| self.publish(turn));
                // Events published in the meantime may extend the batch.
                let ahead = follower.model.values_ahead(&self.ledger, max.min(64));
                let got: Vec<_> = held.iter().map(|(seq, value)| (*seq, value.id())).collect();
                assert!(got.len() <= ahead.len(), "more events than available or requested");
                assert_eq!(got, ahead[..got.len()]);
                for (seq, id) in got {
                    follower.model.take(Answer::Value { seq, id });
                }
            }
            Err(error) => {
                assert_eq!(receive::answer(Err(error)), predicted);
                follower.model.take(predicted);
            }
        }
        follower.model.settle(&self.ledger, follower.real.position());
        self.followers.push(follower);
    }
}
