//! `disruptor` with many producers. It loses nothing: a producer that finds the ring full spins until there is room.

use disruptor::wait_strategies::WaitStrategy;
use disruptor::{
    BusySpin, EventPoller, MultiConsumerBarrier, MultiProducer, MultiProducerBarrier, Polling, Producer,
    build_multi_producer,
};

use super::{Channel, Counts, Publisher, Subscriber, ended};
use doorbell_perf::channels::settings::{CAPACITY, Message};

/// Subscribers wait by this strategy, in the loop that the disruptor runs in its own threads.
pub(crate) struct Disruptor<W>(pub(crate) W);

/// A consumer and its wait strategy.
pub(crate) struct Polled<W> {
    poller: EventPoller<Message, MultiProducerBarrier>,
    strategy: W,
}

impl<W: WaitStrategy + 'static> Channel for Disruptor<W> {
    type Publisher = MultiProducer<Message, MultiConsumerBarrier>;
    type Subscriber = Polled<W>;

    fn open(self, publishers: usize, subscribers: usize) -> (Vec<Self::Publisher>, Vec<Self::Subscriber>) {
        let mut builder = build_multi_producer(CAPACITY, || [0; 4], BusySpin).with_multi_consumer();
        let mut polled = Vec::new();
        for _ in 0..subscribers {
            let (poller, next) = builder.new_event_poller();
            builder = next;
            polled.push(Polled {
                poller,
                strategy: self.0,
            });
        }
        (vec![builder.build(); publishers], polled)
    }
}

impl Publisher for MultiProducer<Message, MultiConsumerBarrier> {
    #[inline]
    fn publish(&mut self, message: Message) {
        Producer::publish(self, |slot| *slot = message);
    }
}

impl<W: WaitStrategy + 'static> Subscriber for Polled<W> {
    #[inline]
    fn receive(&mut self, most: u64, counts: &mut Counts) {
        match self.poller.take(most) {
            Ok(mut messages) => {
                for message in &mut messages {
                    counts.receive(message);
                }
            }
            Err(Polling::NoEvents) => self.strategy.wait_for(0),
            Err(error) => ended(error),
        }
    }
}
