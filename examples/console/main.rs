//! An operations console: serves the snapshot and events of a simulated cluster over HTTP, and a page that shows them live.
//!
//! ```text
//! cargo run --release --example console
//! curl localhost:8080/snapshot
//! curl -N localhost:8080/events
//! ```

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};

mod cluster;
mod service;
mod simulation;
mod web;

use service::Service;
use simulation::Simulation;

/// Shows a simulated cluster live on a web page.
#[derive(Parser)]
struct Options {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The number of events retained. A console that falls further behind takes a new snapshot.
    #[arg(long, default_value = "256")]
    capacity: NonZeroUsize,
    /// Events per second.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// The seed of the simulation. The same seed gives the same events.
    #[arg(long, default_value = "1")]
    seed: u64,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let options = Options::parse();
    let service = Arc::new(Service::new(options.capacity));
    let simulation = Simulation::new(service.clone(), options.seed);
    let simulation = tokio::spawn(simulate(simulation, options.rate));
    let listener = TcpListener::bind(options.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    tokio::select! {
        result = axum::serve(listener, web::router(service)) => result,
        interrupt = tokio::signal::ctrl_c() => interrupt,
        _ = simulation => Err(std::io::Error::other("the simulation ended")),
    }
}

async fn simulate(mut simulation: Simulation, rate: u32) {
    while simulation.is_starting() {
        simulation.step();
    }
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        simulation.step();
    }
}
