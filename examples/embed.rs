//! One publisher, one subscriber on a thread of its own.

use doorbell::ring;

fn main() {
    // Room for 1024 events; a subscriber that falls further behind is told what it missed.
    let (publisher, mut subscriber) = ring::channel::<String>(1024);

    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        // Waits for events, and ends when the last publisher is gone.
        for item in subscriber.iter() {
            match item {
                Ok(event) => received.push(event),
                Err(lag) => eprintln!("missed {} from {}", lag.skipped, lag.first_missed),
            }
        }
        received
    });

    let first = publisher.publish("opened".to_owned()); // never waits; gives the sequence number
    let second = publisher.publish_with(|seq| format!("event number {seq}"));
    assert_eq!((first, second), (1, 2));
    drop(publisher);
    assert_eq!(reader.join().unwrap(), ["opened", "event number 2"]);
}
