//! What the clustered bus delivers, over a healthy server.

mod bus_support;

#[path = "bus_delivery/fan_out.rs"]
mod fan_out;
#[path = "bus_delivery/hostile_notifications.rs"]
mod hostile_notifications;
#[path = "bus_delivery/keys.rs"]
mod keys;
#[path = "bus_delivery/manual_rows.rs"]
mod manual_rows;
#[path = "bus_delivery/notifications.rs"]
mod notifications;
#[path = "bus_delivery/shutdown.rs"]
mod shutdown;
#[path = "bus_delivery/subscriptions.rs"]
mod subscriptions;
#[path = "bus_delivery/transactions.rs"]
mod transactions;
