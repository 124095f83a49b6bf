//! The one task that owns the connection: connects, serves, and connects again.

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

/// A connection that stood for this long ends an outage: the next loss starts counting anew.
const STABLE: Duration = Duration::from_secs(5);

/// A notification that somebody wants sent.
pub(super) struct NotifyRequest {
    pub(super) channel: ChannelName,
    pub(super) payload: String,
    /// Set just before it goes to the server.
    pub(super) taken: watch::Sender<bool>,
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

/// What is known of the outage that the next connection ends.
#[derive(Default)]
pub(super) struct Outage {
    /// When a connection that had stood was lost, if one was.
    lost_at: Option<SystemTime>,
    reconnects: u64,
    /// Attempts that failed, and connections that did not last, since the outage began.
    failures: u32,
    began: Option<Instant>,
}

impl Outage {
    /// The marker for who may have missed something.
    pub(super) fn marker(&self) -> Option<Reconnected> {
        Some(Reconnected {
            lost_at: self.lost_at?,
            restored_at: SystemTime::now(),
            reconnects: self.reconnects,
        })
    }

    /// A connection stands.
    pub(super) fn connected(&mut self) {
        self.reconnects += u64::from(self.lost_at.is_some());
    }

    fn lost(&mut self, stood_since: Instant) {
        self.lost_at = Some(SystemTime::now());
        if stood_since.elapsed() >= STABLE {
            self.failures = 0;
            self.began = None;
        }
    }
}

impl Worker {
    pub(super) fn new(
        settings: Settings,
        source: ConfigSource,
        shared: Arc<SharedListener>,
        requests: mpsc::Receiver<NotifyRequest>,
        health: watch::Sender<ListenHealth>,
        first: Option<oneshot::Sender<Result<(), ListenError>>>,
    ) -> Self {
        let report = Report::new(shared.clone(), health, first);
        Self {
            settings,
            source,
            shared,
            requests,
            report,
            outage: Outage::default(),
        }
    }

    /// Runs until it is told to stop, or the last handle is gone. Whatever ends it, be it the end of the runtime, ends every
    /// subscription: see [`Report`].
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        // An error means that the last handle is gone.
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
                    match session.stood_since() {
                        Some(since) => {
                            self.shared.count(|stats| stats.losses += 1);
                            self.outage.lost(since);
                        }
                        None => self.shared.count(|stats| stats.failed_connects += 1),
                    }
                    error
                }
            };
            self.failed(&error);
            let began = *self.outage.began.get_or_insert_with(Instant::now);
            let backoff = self.settings.backoff;
            let pause = backoff.pause(
                self.outage.failures,
                began.elapsed(),
                error.is_lasting(),
                fastrand::u64(..),
            );
            self.outage.failures = self.outage.failures.saturating_add(1);
            tokio::select! {
                biased;
                () = &mut stop => return,
                () = sleep(pause) => {}
            }
        }
    }

    fn failed(&mut self, error: &ListenError) {
        self.shared.channels.disconnected();
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
                health.delivery = Delivery::Unproven;
            }
        });
        self.report.first(Err(error.clone()));
    }
}
