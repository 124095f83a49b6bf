//! The event bus between processes, through Postgres: one process publishes, the others follow, and the first is killed half-way to
//! show that nothing is lost.
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

/// The event bus between processes, through Postgres.
#[derive(Parser)]
struct Arguments {
    /// The server; without it a throwaway one is started, for which its binaries have to be installed.
    #[arg(long, global = true)]
    url: Option<String>,
    /// How many events are published.
    #[arg(long, default_value_t = 1000, global = true)]
    events: u64,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What a process of the cluster does; without one the command starts a publisher and two followers.
#[derive(Subcommand, Clone, Copy)]
enum Role {
    /// Appends events and rings, until all are in the store.
    Publish,
    /// Follows until all events have come, and checks that each came once and in order.
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
            println!("a throwaway server is at {}", server.url());
            cluster(&server.url(), arguments.events).await
        }
    }
}

async fn cluster(url: &str, events: u64) -> Result<(), Box<dyn std::error::Error>> {
    roles::prepare(url).await?;
    let mut followers = [start("follow", url, events)?, start("follow", url, events)?];
    let mut publisher = start("publish", url, events)?;

    // A publisher dies in the middle of its work. Its successor finds in the store where to go on.
    roles::wait_for(url, events / 2).await?;
    publisher.kill().await?;
    println!("the publisher is killed; another takes over");
    let mut publisher = start("publish", url, events)?;

    if !publisher.wait().await?.success() {
        return Err("the publisher has failed".into());
    }
    for follower in &mut followers {
        if !follower.wait().await?.success() {
            return Err("a follower has failed".into());
        }
    }
    println!("both followers have every event, once and in order");
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
