//! The task that owns the connection: connects, serves the session, and reconnects.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::builder::{ConfigSource, Settings};
use super::channel_name::ChannelName;
use super::error::ListenError;
use super::health::{Delivery, ListenHealth, ListenState};
use super::item::Reconnected;
use super::report::Report;
use super::session::Session;
use super::shared::SharedListener;
use crate::pg::backoff::Backoff;

/// The time that a connection must last to end an outage. After that, the next loss starts with short delays again.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// A notification to be sent.
pub(super) struct NotifyRequest {
    pub(super) channel: ChannelName,
    pub(super) payload: String,
    /// Set just before it is sent to the server.
    pub(super) started: watch::Sender<bool>,
    pub(super) reply: oneshot::Sender<Result<(), ListenError>>,
}

pub(super) struct Worker {
    pub(super) settings: Settings,
    pub(super) source: ConfigSource,
    pub(super) shared: Arc<SharedListener>,
    pub(super) requests: mpsc::Receiver<NotifyRequest>,
    pub(super) report: Report,
    pub(super) outage: Outage,
}

/// The outage that the next connection ends.
#[derive(Default)]
pub(super) struct Outage {
    /// When the latest established connection was lost, if one was.
    disconnected_at: Option<SystemTime>,
    reconnects: u64,
    /// Failed attempts, and connections that did not last, since the outage began.
    failures: u32,
    began: Option<Instant>,
}

impl Outage {
    /// Returns the item for subscriptions that may have missed notifications.
    pub(super) fn reconnected(&self) -> Option<Reconnected> {
        Some(Reconnected {
            disconnected_at: self.disconnected_at?,
            reconnected_at: SystemTime::now(),
            reconnects: self.reconnects,
        })
    }

    /// Records that a connection is established.
    pub(super) fn record_connected(&mut self) {
        self.reconnects += u64::from(self.disconnected_at.is_some());
    }

    /// Records the loss of a connection that was established at this instant.
    fn record_disconnected(&mut self, established_at: Instant) {
        self.disconnected_at = Some(SystemTime::now());
        if established_at.elapsed() >= STABLE_AFTER {
            self.failures = 0;
            self.began = None;
        }
    }

    /// Returns the delay before the next attempt, after one that failed with `error`.
    fn next_delay(&mut self, backoff: &Backoff, error: &ListenError) -> Duration {
        let began = *self.began.get_or_insert_with(Instant::now);
        let failures = self.failures;
        self.failures = failures.saturating_add(1);
        backoff.delay(failures, began.elapsed(), error.needs_intervention(), fastrand::f64())
    }
}

impl Worker {
    pub(super) fn new(
        settings: Settings,
        source: ConfigSource,
        shared: Arc<SharedListener>,
        requests: mpsc::Receiver<NotifyRequest>,
        health: watch::Sender<ListenHealth>,
        first_attempt: Option<oneshot::Sender<Result<(), ListenError>>>,
    ) -> Self {
        let report = Report::new(shared.clone(), health, first_attempt);
        Self {
            settings,
            source,
            shared,
            requests,
            report,
            outage: Outage::default(),
        }
    }

    /// Runs until `stopped` is set or the last handle is dropped. Dropping the future, as at the end of the runtime, also ends
    /// every subscription (see [`Report`]).
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        // An error means that the last handle was dropped.
        let mut stop = std::pin::pin!(async move { drop(stopped.wait_for(|stop| *stop).await) });
        loop {
            let connected = tokio::select! {
                biased;
                () = &mut stop => return,
                connected = Session::connect(&self.settings, &self.source, self.shared.clone()) => connected,
            };
            let error = match connected {
                Err(error) => {
                    self.shared.count(|stats| stats.failed_connects += 1);
                    error
                }
                Ok(mut session) => {
                    let ended = tokio::select! {
                        biased;
                        () = &mut stop => None,
                        error = session.serve(&mut self) => Some(error),
                    };
                    let Some(error) = ended else {
                        session.close().await;
                        return;
                    };
                    match session.established_at() {
                        Some(established_at) => {
                            self.shared.count(|stats| stats.disconnects += 1);
                            self.outage.record_disconnected(established_at);
                        }
                        None => self.shared.count(|stats| stats.failed_connects += 1),
                    }
                    error
                }
            };
            self.report_failure(&error);
            let delay = self.outage.next_delay(&self.settings.backoff, &error);
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = sleep(delay) => {}
            }
        }
    }

    fn report_failure(&mut self, error: &ListenError) {
        self.shared.channels.end_session();
        if matches!(error, ListenError::Standby) {
            self.shared.channels.refuse_all(error);
        }
        self.report.update(|health| {
            health.server = None;
            health.reason = Some(error.clone());
            if matches!(error, ListenError::Standby) {
                health.state = ListenState::Degraded;
                health.standby = Some(true);
                health.delivery = Delivery::Failed;
            } else {
                health.state = ListenState::Disconnected;
                health.delivery = Delivery::Unverified;
            }
        });
        self.report.first_attempt(Err(error.clone()));
    }
}
