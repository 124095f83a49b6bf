//! Runs one scenario many times on one thread, for callgrind to count instructions.
//!
//! `instructions CHANNEL SCENARIO MESSAGES`; `perf/instructions.sh` runs them all and prints instructions per message.

use std::hint::black_box;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use doorbell::ring::{self, Publisher, Subscriber};
use tokio::sync::broadcast;

const CAPACITY: usize = 1024;
const BATCH: u64 = 64;

type Message = [u64; 4];

/// A channel with one subscriber.
trait Channel {
    fn publish(&mut self, message: Message);

    /// Receives a message by value; returns its number.
    fn receive(&mut self) -> u64;

    /// Reads a message by reference where the channel can.
    fn read(&mut self) -> u64 {
        self.receive()
    }

    /// Waits for a message as a task, which the publication wakes; returns its number.
    fn wait(&mut self, waker: &Waker, message: Message) -> u64;

    /// Publishes [`BATCH`] messages together where the channel can.
    fn publish_batch(&mut self, first: u64) {
        for number in first..first + BATCH {
            self.publish(message(number));
        }
    }

    /// Reads [`BATCH`] messages together where the channel can; returns the sum of their numbers.
    fn read_batch(&mut self) -> u64 {
        (0..BATCH).map(|_| self.read()).sum()
    }
}

/// Polls a receive, which finds nothing, publishes, and polls it again.
fn wait<E>(waker: &Waker, receive: impl Future<Output = Result<Message, E>>, publish: impl FnOnce()) -> u64 {
    let mut receive = pin!(receive);
    let mut context = Context::from_waker(waker);
    assert!(receive.as_mut().poll(&mut context).is_pending(), "nothing is published");
    publish();
    match receive.poll(&mut context) {
        Poll::Ready(Ok(message)) => message[0],
        _ => panic!("what was published"),
    }
}

/// The waker of a task that does nothing when it is woken.
struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

struct Doorbell {
    publisher: Publisher<Message>,
    subscriber: Subscriber<Message>,
}

impl Channel for Doorbell {
    fn publish(&mut self, message: Message) {
        self.publisher.publish(message);
    }

    fn receive(&mut self) -> u64 {
        self.subscriber.try_recv().expect("what was published")[0]
    }

    fn read(&mut self) -> u64 {
        self.subscriber.try_recv_ref().expect("what was published")[0]
    }

    fn wait(&mut self, waker: &Waker, message: Message) -> u64 {
        let publisher = &self.publisher;
        wait(waker, self.subscriber.recv(), || {
            publisher.publish(message);
        })
    }

    // Inlined into the loop of its only caller, the same code costs 0.9 instructions more.
    #[inline(never)]
    fn publish_batch(&mut self, first: u64) {
        self.publisher.publish_batch(batch(first));
    }

    fn read_batch(&mut self) -> u64 {
        let (mut sum, mut left) = (0, BATCH as usize);
        while left > 0 {
            for message in self.subscriber.try_recv_batch(left).expect("what was published") {
                sum += message[0];
                left -= 1;
            }
        }
        sum
    }
}

struct Tokio {
    sender: broadcast::Sender<Message>,
    receiver: broadcast::Receiver<Message>,
}

impl Channel for Tokio {
    fn publish(&mut self, message: Message) {
        self.sender.send(message).expect("a receiver");
    }

    fn receive(&mut self) -> u64 {
        self.receiver.try_recv().expect("what was published")[0]
    }

    fn wait(&mut self, waker: &Waker, message: Message) -> u64 {
        let sender = &self.sender;
        wait(waker, self.receiver.recv(), || {
            sender.send(message).expect("a receiver");
        })
    }
}

#[derive(Clone, Copy)]
enum Scenario {
    Publish,
    PublishReceive,
    PublishRead,
    Wait,
    Batch,
    PublishBatch,
}

impl Scenario {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "publish" => Self::Publish,
            "publish_receive" => Self::PublishReceive,
            "publish_read" => Self::PublishRead,
            "wait" => Self::Wait,
            "batch" => Self::Batch,
            "publish_batch" => Self::PublishBatch,
            _ => return None,
        })
    }

    /// Sends `messages` messages, and checks those that it receives.
    fn run(self, mut channel: impl Channel, messages: u64) {
        let batches = (0..messages).step_by(BATCH as usize);
        match self {
            Self::Publish => (0..messages).for_each(|number| channel.publish(black_box(message(number)))),
            Self::PublishReceive => {
                for number in 0..messages {
                    channel.publish(black_box(message(number)));
                    assert_eq!(channel.receive(), number, "the message received");
                }
            }
            Self::PublishRead => {
                for number in 0..messages {
                    channel.publish(black_box(message(number)));
                    assert_eq!(channel.read(), number, "the message read");
                }
            }
            Self::Wait => {
                let waker = Waker::from(Arc::new(Task));
                for number in 0..messages {
                    let received = channel.wait(&waker, black_box(message(number)));
                    assert_eq!(received, number, "the message received");
                }
            }
            Self::Batch => {
                for first in batches {
                    (first..first + BATCH).for_each(|number| channel.publish(black_box(message(number))));
                    assert_eq!(channel.read_batch(), sum_of_batch(first), "the batch read");
                }
            }
            Self::PublishBatch => {
                for first in batches {
                    channel.publish_batch(black_box(first));
                    assert_eq!(channel.read_batch(), sum_of_batch(first), "the batch read");
                }
            }
        }
    }
}

fn message(number: u64) -> Message {
    [number, 1, 2, 3]
}

fn batch(first: u64) -> impl ExactSizeIterator<Item = Message> {
    (0..BATCH as u32).map(move |index| message(first + u64::from(index)))
}

fn sum_of_batch(first: u64) -> u64 {
    first * BATCH + BATCH * (BATCH - 1) / 2
}

fn run(arguments: &[String]) -> Option<()> {
    let [channel, scenario, messages] = arguments else {
        return None;
    };
    let scenario = Scenario::parse(scenario)?;
    let messages = messages.parse().ok()?;
    match channel.as_str() {
        "doorbell" => {
            let (publisher, subscriber) = ring::channel(CAPACITY);
            scenario.run(Doorbell { publisher, subscriber }, messages);
        }
        "tokio" => {
            let (sender, receiver) = broadcast::channel(CAPACITY);
            scenario.run(Tokio { sender, receiver }, messages);
        }
        _ => return None,
    }
    Some(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if run(&arguments).is_some() {
        return ExitCode::SUCCESS;
    }
    eprintln!("usage: instructions doorbell|tokio publish|publish_receive|publish_read|batch|publish_batch MESSAGES");
    ExitCode::FAILURE
}
