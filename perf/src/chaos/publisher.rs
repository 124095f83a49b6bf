//! A publisher process: appends to all streams in several ways until its standard input is closed. If `crashes`, it also exits
//! between a commit and its notification from time to time.

use std::time::Duration;

use doorbell::bus::{DistributedBus, EventBus as _, FleetEvent};
use doorbell::store::{PostgresStore, Store as _};

use super::{STREAMS, builder, connect, stream};
use crate::child::{runtime, stdin_closed};
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
        // Failures are ignored: the audit reads from the store what was committed.
        let failed = match rng.u64(..1000) {
            0..5 => {
                let committed = store.append(note(&mut rng, &mut count)).await.is_ok();
                if committed && crashes {
                    std::process::exit(0); // before the notification
                }
                !committed
            }
            5..200 => {
                let batch = (0..1 + rng.u64(..30)).map(|_| note(&mut rng, &mut count)).collect();
                bus.append_batch_and_publish(batch).await.is_err()
            }
            200..300 => match store.append(note(&mut rng, &mut count)).await {
                Ok(stamped) => {
                    tokio::time::sleep(rng.millis(0..20)).await;
                    bus.publish(stamped);
                    false
                }
                Err(_) => true,
            },
            _ => bus.append_and_publish(note(&mut rng, &mut count)).await.is_err(),
        };
        let pause = if failed {
            Duration::from_millis(20)
        } else {
            rng.millis(0..pause)
        };
        tokio::time::sleep(pause).await;
    }
}
