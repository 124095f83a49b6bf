//! A publisher process: appends to all streams in several ways until its standard input is closed, and prints when an append was
//! refused. If `crashes`, it also exits between a commit and its notification from time to time.

use std::time::Duration;

use doorbell::bus::{BusError, DistributedBus, EventBus as _, FleetEvent};
use doorbell::store::{PostgresStore, Store as _};

use super::{REFUSED, STREAMS, builder, connect, stream};
use crate::bus::timed_event::now;
use crate::child::{print_line, runtime, stdin_closed};
use testkit::random::{Rng, RngExt as _};

pub(super) fn run(url: &str, seed: u64, pause: u64, crashes: bool) {
    runtime().block_on(async {
        let store = connect(url).await;
        let bus = builder(url, &store).start().unwrap();
        tokio::select! {
            () = publish(&bus, &store, Rng::with_seed(seed), pause, crashes) => unreachable!("publishing does not end"),
            () = stdin_closed() => {}
        }
        bus.shutdown().await;
    });
}

async fn publish(bus: &DistributedBus, store: &PostgresStore, mut rng: Rng, pause: u64, crashes: bool) {
    let mut count = 0_u64;
    let process = std::process::id();
    loop {
        let note = |rng: &mut Rng, count: &mut u64| {
            *count += 1;
            FleetEvent::custom(stream(rng.u64(..STREAMS)), "note", format!("{process} {count}"))
        };
        let appended: Result<(), BusError> = match rng.u64(..1000) {
            0..5 => match store.append(note(&mut rng, &mut count)).await {
                Ok(_) if crashes => std::process::exit(0), // before the notification
                appended => appended.map(drop).map_err(BusError::Store),
            },
            5..200 => {
                let batch = (0..1 + rng.u64(..30)).map(|_| note(&mut rng, &mut count)).collect();
                bus.append_batch_and_publish(batch).await.map(drop)
            }
            200..300 => match store.append(note(&mut rng, &mut count)).await {
                Ok(stamped) => {
                    tokio::time::sleep(rng.millis(0..20)).await;
                    bus.publish(stamped);
                    Ok(())
                }
                Err(error) => Err(BusError::Store(error)),
            },
            _ => bus.append_and_publish(note(&mut rng, &mut count)).await.map(drop),
        };
        let pause = match appended {
            Ok(()) => rng.millis(0..pause),
            // The audit reads from the store what was committed.
            Err(BusError::Store(error)) if error.is_transient() => {
                print_line(&format!("{REFUSED} {} {error:?}", now()));
                Duration::from_millis(20)
            }
            Err(error) => panic!("an append failed: {error:?}"),
        };
        tokio::time::sleep(pause).await;
    }
}
