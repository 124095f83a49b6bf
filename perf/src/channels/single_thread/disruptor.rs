//! `disruptor`, through its poller: it never loses a message, so it is measured where subscribers keep up. It reads by
//! reference only; receiving by value clones.

use disruptor::{
    BusySpin, EventPoller, MultiProducer, MultiProducerBarrier, Producer, SingleConsumerBarrier, SingleProducer,
    SingleProducerBarrier, build_multi_producer, build_single_producer,
};

use super::{Channel, broken};
use crate::channels::payload::Payload;
use crate::channels::settings::{BATCH, CAPACITY};

/// With many producers.
pub struct DisruptorMulti<T> {
    producer: MultiProducer<T, SingleConsumerBarrier>,
    poller: EventPoller<T, MultiProducerBarrier>,
}

/// With one producer.
pub struct DisruptorSingle<T> {
    producer: SingleProducer<T, SingleConsumerBarrier>,
    poller: EventPoller<T, SingleProducerBarrier>,
}

impl<T: Payload> DisruptorMulti<T> {
    /// A disruptor with one poller; its wait strategy is for its own threads, which are not used.
    pub fn open() -> Self {
        let (poller, builder) = build_multi_producer(CAPACITY, || T::make(0), BusySpin).new_event_poller();
        Self {
            producer: builder.build(),
            poller,
        }
    }
}

impl<T: Payload> DisruptorSingle<T> {
    /// A disruptor with one poller; its wait strategy is for its own threads, which are not used.
    pub fn open() -> Self {
        let (poller, builder) = build_single_producer(CAPACITY, || T::make(0), BusySpin).new_event_poller();
        Self {
            producer: builder.build(),
            poller,
        }
    }
}

macro_rules! channel {
    ($disruptor:ident) => {
        impl<T: Payload> Channel<T> for $disruptor<T> {
            #[inline]
            fn publish(&mut self, value: T) {
                self.producer.publish(|slot| *slot = value);
            }

            #[inline]
            fn receive(&mut self) -> T {
                let mut events = self.poller.take(1).unwrap_or_else(|error| broken(error));
                (&mut events)
                    .next()
                    .cloned()
                    .unwrap_or_else(|| broken("an empty batch"))
            }

            #[inline]
            fn read(&mut self) -> u64 {
                let mut events = self.poller.take(1).unwrap_or_else(|error| broken(error));
                (&mut events)
                    .next()
                    .map_or_else(|| broken("an empty batch"), Payload::number)
            }

            #[inline]
            fn publish_batch(&mut self, first: u64) {
                self.producer.batch_publish(BATCH as usize, |slots| {
                    for (slot, number) in slots.zip(first..) {
                        *slot = T::make(number);
                    }
                });
            }

            #[inline]
            fn read_batch(&mut self) -> u64 {
                let mut events = self.poller.take(BATCH).unwrap_or_else(|error| broken(error));
                if (&mut events).len() as u64 != BATCH {
                    broken("a short batch");
                }
                (&mut events).fold(0, |sum, event| sum.wrapping_add(event.number()))
            }
        }
    };
}

channel!(DisruptorMulti);
channel!(DisruptorSingle);
