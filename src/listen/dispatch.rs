//! Dispatches the server's asynchronous messages to the subscriptions.

use std::sync::Arc;

use tokio_postgres::AsyncMessage;
use tokio_postgres::error::{DbError, SqlState};

use super::channels::Route;
use super::item::{ListenItem, Notification};
use super::shared::SharedListener;

/// How many messages are dispatched before the subscribers have their turn.
const TURN: usize = 64;

pub(super) struct Dispatcher {
    shared: Arc<SharedListener>,
    /// A message that arrived behind an answer that must be handled first.
    deferred: Option<AsyncMessage>,
    /// The channel and the payload of the latest probe.
    probe: Option<(String, String)>,
    probe_arrived: bool,
    /// How many messages were dispatched since the subscribers had their turn.
    since_turn: usize,
    /// The latest notice that the server truncated an identifier.
    truncation: Option<DbError>,
}

impl Dispatcher {
    pub(super) fn new(shared: Arc<SharedListener>) -> Self {
        Self {
            shared,
            deferred: None,
            probe: None,
            probe_arrived: false,
            since_turn: 0,
            truncation: None,
        }
    }

    pub(super) fn record_received(&self) {
        self.shared.record_received();
    }

    /// Keeps a message until the next one, or until [`dispatch_deferred`](Self::dispatch_deferred).
    pub(super) fn defer(&mut self, message: AsyncMessage) {
        self.dispatch_deferred();
        self.deferred = Some(message);
    }

    /// Dispatches the deferred message. Returns whether there was one.
    pub(super) fn dispatch_deferred(&mut self) -> bool {
        match self.deferred.take() {
            Some(message) => {
                self.handle(message);
                true
            }
            None => false,
        }
    }

    /// Dispatches a message, after the deferred one.
    pub(super) fn dispatch(&mut self, message: AsyncMessage) {
        self.dispatch_deferred();
        self.handle(message);
    }

    /// Lets the subscribers run after every few messages, or a flood would overwrite what they have not received yet.
    pub(super) async fn give_turn(&mut self) {
        if self.since_turn >= TURN {
            self.since_turn = 0;
            tokio::task::yield_now().await;
        }
    }

    fn handle(&mut self, message: AsyncMessage) {
        self.since_turn += 1;
        self.shared.record_received();
        match message {
            AsyncMessage::Notification(notification) => self.deliver(notification),
            AsyncMessage::Notice(notice) => {
                tracing::debug!(%notice, "notice from the server");
                // A checked name is short enough in UTF-8, but may be longer in the database's encoding.
                if *notice.code() == SqlState::NAME_TOO_LONG {
                    self.truncation = Some(notice);
                }
            }
            _ => {}
        }
    }

    fn deliver(&mut self, notification: tokio_postgres::Notification) {
        if let Some((channel, nonce)) = &self.probe
            && channel == notification.channel()
        {
            self.probe_arrived |= nonce == notification.payload();
            return;
        }
        match self.shared.channels.route(notification.channel()) {
            Route::Ring(name, ring) => {
                // tokio-postgres gives the payload only by reference.
                let payload = notification.payload().to_owned();
                let item = Notification::new(name, payload, notification.process_id());
                // Count before publishing, so that a subscriber that has the item finds it counted.
                self.shared.count(|stats| stats.notifications_received += 1);
                ring.publish(ListenItem::Notification(item));
            }
            Route::Idle => self.shared.count(|stats| stats.notifications_received += 1),
            Route::Unknown => self.shared.count(|stats| {
                stats.notifications_received += 1;
                stats.notifications_unrouted += 1;
            }),
        }
    }

    pub(super) fn expect_probe(&mut self, channel: &str, nonce: &str) {
        self.probe = Some((channel.to_owned(), nonce.to_owned()));
        self.probe_arrived = false;
    }

    pub(super) fn probe_arrived(&self) -> bool {
        self.probe_arrived
    }

    /// Ends the wait for the probe. Its channel stays known until the next probe, so that a late one is not counted as a
    /// notification.
    pub(super) fn end_probe(&mut self) {
        self.probe_arrived = false;
    }

    pub(super) fn take_truncation(&mut self) -> Option<DbError> {
        self.truncation.take()
    }
}
