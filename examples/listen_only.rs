//! Listens on the channel `doorbell` and prints its notifications, until Ctrl-C. Uses the database in `DATABASE_URL`, or starts a
//! private server: `cargo run --features postgres --example listen_only`.

use doorbell::listen::{ListenItem, ListenMultiplexer};
use futures::StreamExt;
use throwaway_postgres::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::var("DATABASE_URL").ok();
    let server = if given.is_none() { Some(Server::start()?) } else { None };
    let url = given.or(server.as_ref().map(Server::url)).unwrap_or_default();

    let mux = ListenMultiplexer::connect(&url).await?;
    let subscription = mux.subscribe("doorbell").await?; // acknowledged: nothing is missed from here on
    println!("listening; try:  psql '{url}' -c \"NOTIFY doorbell, 'hello'\"");
    mux.notify("doorbell", "hello from this process").await?;

    let mut items = subscription.take_until(Box::pin(tokio::signal::ctrl_c()));
    while let Some(item) = items.next().await {
        match item {
            ListenItem::Notification(notification) => {
                println!(
                    "{} (from process {})",
                    notification.payload(),
                    notification.sender_pid()
                );
            }
            other => println!("some notifications may be missing: {other:?}"), // reconnected or lagged
        }
    }
    mux.shutdown().await;
    Ok(())
}
