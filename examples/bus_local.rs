//! The event bus within one process: a supervisor that follows a small fleet.
//!
//! ```sh
//! cargo run --example bus_local --features bus
//! ```

use doorbell::bus::{BusEvent, EventBus, FleetEvent, FleetEventKind, LocalBus};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = LocalBus::new();

    // The supervisor hears of every agent, also of those that nobody knows yet.
    let mut fleet = bus.subscribe_all();
    fleet.ready().await?;
    let supervisor = tokio::spawn(async move {
        let mut heard = 0;
        while let Some(item) = fleet.recv().await {
            match item {
                BusEvent::Event(event) => {
                    heard += 1;
                    println!("{} number {}: {:?}", event.agent_id, event.seq, event.kind);
                }
                other => println!("{other:?}"),
            }
        }
        heard
    });

    for agent in ["alpha", "beta"] {
        let address = format!("{agent}.fleet.example:4500");
        bus.append_and_publish(FleetEvent::new(agent, FleetEventKind::AgentDiscovered { address }))
            .await?;
        bus.append_and_publish(FleetEvent::new(agent, FleetEventKind::AgentConnected))
            .await?;
    }

    // Who comes late reads the history and goes on live, in one stream.
    let mut alpha = bus.subscribe_from("alpha", 0);
    bus.append_and_publish(FleetEvent::new("alpha", FleetEventKind::AgentRetired))
        .await?;
    for expected in 1..=3 {
        let Some(BusEvent::Event(event)) = alpha.recv().await else {
            return Err("an event was expected".into());
        };
        assert_eq!(event.seq, expected);
    }

    drop(bus); // subscriptions end, after what they have not received yet
    println!("the supervisor heard {} events", supervisor.await?);
    Ok(())
}
