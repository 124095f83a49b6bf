//! Listens on the channel `doorbell` of the database that `DATABASE_URL` names, or of a private server that it starts, and prints
//! what is notified: `cargo run --features postgres --example listen_only`. Ctrl-C ends it.

use doorbell::listen::{ListenItem, ListenMultiplexer};
use futures::StreamExt;
use throwaway_postgres::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::var("DATABASE_URL").ok();
    let server = if given.is_none() { Some(Server::start()?) } else { None };
    let url = given.or(server.as_ref().map(Server::url)).unwrap_or_default();

    let mux = ListenMultiplexer::connect(&url).await?;
    let doorbell = mux.subscribe("doorbell").await?; // acknowledged by the server: nothing from here on is missed
    println!("listening; try:  psql '{url}' -c \"NOTIFY doorbell, 'ding'\"");
    mux.notify("doorbell", "dong").await?; // or ring it from here

    let mut items = doorbell.take_until(Box::pin(tokio::signal::ctrl_c()));
    while let Some(item) = items.next().await {
        match item {
            ListenItem::Notification(ring) => println!("{} (from process {})", ring.payload(), ring.sender_pid()),
            other => println!("some may be missing: {other:?}"), // reconnected, or lagged
        }
    }
    mux.shutdown().await;
    Ok(())
}
