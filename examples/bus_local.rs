//! The event bus within one process: a supervisor follows a small fleet.
//!
//! ```sh
//! cargo run --example bus_local --features bus
//! ```

use doorbell::bus::{BusEvent, EventBus, FleetEvent, FleetEventKind, LocalBus};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bus = LocalBus::new();

    // The supervisor gets the events of every agent, including those that are not known yet.
    let mut fleet = bus.subscribe_all();
    fleet.ready().await?;
    let supervisor = tokio::spawn(async move {
        let mut received = 0;
        while let Some(item) = fleet.recv().await {
            match item {
                BusEvent::Event(event) => {
                    received += 1;
                    println!("{} number {}: {:?}", event.agent_id, event.seq, event.kind);
                }
                other => println!("{other:?}"),
            }
        }
        received
    });

    for agent in ["alpha", "beta"] {
        let address = format!("{agent}.fleet.example:4500");
        bus.append_and_publish(FleetEvent::new(agent, FleetEventKind::AgentDiscovered { address }))
            .await?;
        bus.append_and_publish(FleetEvent::new(agent, FleetEventKind::AgentConnected))
            .await?;
    }

    // A late subscriber gets the history first, then live events.
    let mut alpha = bus.subscribe_from("alpha", 0);
    bus.append_and_publish(FleetEvent::new("alpha", FleetEventKind::AgentRetired))
        .await?;
    for expected in 1..=3 {
        let Some(BusEvent::Event(event)) = alpha.recv().await else {
            return Err("expected an event".into());
        };
        assert_eq!(event.seq, expected);
    }

    drop(bus); // subscriptions deliver what is in memory, then end
    println!("the supervisor received {} events", supervisor.await?);
    Ok(())
}
