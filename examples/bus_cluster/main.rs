//! The event bus between processes, over Postgres: one process publishes and two follow. The publisher is killed halfway, and no event is
//! lost.
//!
//! ```sh
//! cargo run --example bus_cluster --features postgres                     # with a throwaway server
//! cargo run --example bus_cluster --features postgres -- --url postgres://localhost/app
//! ```

mod roles;

use std::process::Stdio;

use clap::{Parser, Subcommand};
use throwaway_postgres::Server;
use tokio::process::{Child, Command};

/// The event bus between processes, over Postgres.
#[derive(Parser)]
struct Arguments {
    /// The URL of the server. Without it a throwaway server is started, which needs an installed PostgreSQL.
    #[arg(long, global = true)]
    url: Option<String>,
    /// The number of events to publish.
    #[arg(long, default_value_t = 1000, global = true)]
    events: u64,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The role of a process. Without one, the command starts a publisher and two followers.
#[derive(Subcommand, Clone, Copy)]
enum Role {
    /// Append and publish events until all are in the store.
    Publish,
    /// Receive all events, and check that each comes once and in order.
    Follow,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    match (arguments.role, &arguments.url) {
        (Some(role), Some(url)) => match role {
            Role::Publish => roles::publish(url, arguments.events).await,
            Role::Follow => roles::follow(url, arguments.events).await,
        },
        (Some(_), None) => Err("a role needs --url".into()),
        (None, Some(url)) => cluster(url, arguments.events).await,
        (None, None) => {
            let server = Server::start()?;
            println!("started a throwaway server at {}", server.url());
            cluster(&server.url(), arguments.events).await
        }
    }
}

async fn cluster(url: &str, events: u64) -> Result<(), Box<dyn std::error::Error>> {
    roles::prepare(url).await?;
    let mut followers = [start("follow", url, events)?, start("follow", url, events)?];
    let mut publisher = start("publish", url, events)?;

    // The publisher dies halfway. Its successor continues after the last number in the store.
    roles::wait_for(url, events / 2).await?;
    publisher.kill().await?;
    println!("killed the publisher; another one takes over");
    let mut publisher = start("publish", url, events)?;

    if !publisher.wait().await?.success() {
        return Err("the publisher failed".into());
    }
    for follower in &mut followers {
        if !follower.wait().await?.success() {
            return Err("a follower failed".into());
        }
    }
    println!("both followers received every event, once and in order");
    Ok(())
}

fn start(role: &str, url: &str, events: u64) -> Result<Child, Box<dyn std::error::Error>> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--url", url, "--events", &events.to_string(), role])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    Ok(child)
}
