//! What the server sends without being asked, on its way to the subscriptions.

use std::sync::Arc;

use tokio_postgres::AsyncMessage;
use tokio_postgres::error::{DbError, SqlState};

use super::channels::Addressee;
use super::item::{ListenItem, Notification};
use super::shared::SharedListener;

pub(super) struct Dispatcher {
    shared: Arc<SharedListener>,
    /// A message that came behind an answer which has to be dealt with first.
    held: Option<AsyncMessage>,
    /// The channel and the payload of the probe that is on its way.
    expected: Option<(String, String)>,
    /// The probe has arrived.
    arrived: bool,
    /// The server has cut an identifier since somebody looked.
    truncated: Option<DbError>,
}

impl Dispatcher {
    pub(super) fn new(shared: Arc<SharedListener>) -> Self {
        Self {
            shared,
            held: None,
            expected: None,
            arrived: false,
            truncated: None,
        }
    }

    pub(super) fn received(&self) {
        self.shared.received();
    }

    /// Keeps a message back until the next one, or until [`take_held`](Self::take_held).
    pub(super) fn hold(&mut self, message: AsyncMessage) {
        self.take_held();
        self.held = Some(message);
    }

    /// Takes the message that was kept back, if there is one.
    pub(super) fn take_held(&mut self) -> bool {
        let held = self.held.take();
        let any = held.is_some();
        if let Some(message) = held {
            self.deal_with(message);
        }
        any
    }

    /// Takes a message, after the one that was kept back.
    pub(super) fn take(&mut self, message: AsyncMessage) {
        self.take_held();
        self.deal_with(message);
    }

    fn deal_with(&mut self, message: AsyncMessage) {
        self.shared.received();
        match message {
            AsyncMessage::Notification(notification) => self.deliver(notification),
            AsyncMessage::Notice(notice) => {
                tracing::debug!(%notice, "the server remarks");
                // 42622: name too long. Ours never are in UTF-8, but encodings differ.
                if *notice.code() == SqlState::NAME_TOO_LONG {
                    self.truncated = Some(notice);
                }
            }
            _ => {}
        }
    }

    fn deliver(&mut self, notification: tokio_postgres::Notification) {
        let probe = self.expected.as_ref();
        if let Some((channel, nonce)) = probe
            && channel == notification.channel()
        {
            self.arrived |= nonce == notification.payload();
            return;
        }
        match self.shared.channels.addressee(notification.channel()) {
            Addressee::Ring(name, ring) => {
                // tokio-postgres gives the payload only by reference.
                let payload = notification.payload().to_owned();
                let item = Notification::new(name, payload, notification.process_id());
                // Counted first, so that who has received it finds it counted.
                self.shared.count(|stats| stats.notifications += 1);
                ring.publish(ListenItem::Notification(item));
            }
            Addressee::Nobody => self.shared.count(|stats| stats.notifications += 1),
            Addressee::Unknown => self.shared.count(|stats| {
                stats.notifications += 1;
                stats.unknown_channel += 1;
            }),
        }
    }

    pub(super) fn expect(&mut self, channel: &str, nonce: &str) {
        self.expected = Some((channel.to_owned(), nonce.to_owned()));
        self.arrived = false;
    }

    pub(super) fn probe_arrived(&self) -> bool {
        self.arrived
    }

    /// Ends the expectation. The probe's channel is told apart until the next one, for latecomers.
    pub(super) fn forget_probe(&mut self) {
        self.arrived = false;
    }

    pub(super) fn take_truncation(&mut self) -> Option<DbError> {
        self.truncated.take()
    }
}
