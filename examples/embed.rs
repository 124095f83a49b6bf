//! One publisher, and one subscriber on another thread.

use doorbell::ring;

fn main() {
    let (publisher, mut subscriber) = ring::channel::<String>(1024); // retains the last 1024 events
    let reader = std::thread::spawn(move || {
        for item in subscriber.iter() {
            match item {
                Ok(event) => println!("{event}"),
                Err(lag) => eprintln!("missed {} events from {}", lag.skipped, lag.first_missed),
            }
        }
    });
    publisher.publish("opened".to_owned()); // never waits; returns the sequence number
    publisher.publish_with(|seq| format!("event {seq}"));
    drop(publisher); // the subscriber drains what is retained, then its loop ends
    reader.join().unwrap();
}
