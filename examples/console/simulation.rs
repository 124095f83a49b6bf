//! A simulated cluster: peers connect and disconnect, others adopt their shards, workers come and go.

use std::collections::VecDeque;
use std::sync::Arc;

use doorbell::cluster::{ClusterEvent, Text};
use fastrand::Rng;

use crate::service::Service;

const PEERS: [&str; 6] = ["alder", "birch", "cedar", "elm", "larch", "rowan"];
const NAMESPACES: [&str; 5] = ["billing", "exports", "mail", "search", "thumbnails"];
const SHARDS: usize = 24;
const WORKERS: usize = 7;

/// What happens next.
enum Step {
    Join(Text),
    Connect(Text),
    Adopt(Text),
    ConnectWorker(Text),
    StartSupervisor,
    RestartSupervisor,
}

/// Emits one event after another.
pub(crate) struct Simulation {
    service: Arc<Service>,
    /// Consequences of earlier events.
    due: VecDeque<Step>,
    rng: Rng,
}

impl Simulation {
    /// Starts a cluster. The same seed gives the same events.
    pub(crate) fn new(service: Arc<Service>, seed: u64) -> Self {
        let peers = PEERS.map(Text::from);
        let mut due = VecDeque::from([Step::StartSupervisor]);
        due.extend(peers.iter().cloned().map(Step::Join));
        due.extend(peers.into_iter().map(Step::Connect));
        due.extend((0..SHARDS).map(|shard| Step::Adopt(format!("shard-{shard:02}").into())));
        due.extend((1..=WORKERS).map(|worker| Step::ConnectWorker(format!("worker-{worker}").into())));
        Self {
            service,
            due,
            rng: Rng::with_seed(seed),
        }
    }

    /// Whether the cluster is still starting.
    pub(crate) fn is_starting(&self) -> bool {
        self.due.len() > SHARDS / 2
    }

    /// Emits the next event.
    pub(crate) fn step(&mut self) {
        match self.due.pop_front() {
            Some(step) => self.run(step),
            None => self.start_change(),
        }
    }

    fn run(&mut self, step: Step) {
        let service = self.service.clone();
        match step {
            Step::Join(peer) => {
                let number = PEERS.iter().position(|name| *name == &*peer).unwrap_or_default();
                let address = format!("10.0.0.{}:7400", 11 + number).into();
                service.change(|meta| ClusterEvent::PeerJoined { meta, peer, address });
            }
            Step::Connect(peer) => {
                service.change(|meta| ClusterEvent::PeerConnected { meta, peer });
            }
            Step::Adopt(shard) => self.adopt(shard),
            Step::ConnectWorker(worker) => {
                let from = self.rng.usize(..NAMESPACES.len());
                let namespaces = NAMESPACES[from..].iter().take(2).copied().map(Text::from).collect();
                service.change(|meta| ClusterEvent::WorkerConnected {
                    meta,
                    worker,
                    namespaces,
                });
            }
            Step::StartSupervisor => {
                let supervisor = "supervisor-main".into();
                service.change(|meta| ClusterEvent::SupervisorStarted { meta, supervisor });
            }
            Step::RestartSupervisor => {
                let supervisor = "supervisor-main".into();
                let reason = "new configuration".into();
                service.change(|meta| ClusterEvent::SupervisorStopped {
                    meta,
                    supervisor,
                    reason,
                });
                self.due.push_back(Step::StartSupervisor);
            }
        }
    }

    /// A connected peer takes over the shard, fails to, or skips it. In the last two cases another peer tries later.
    fn adopt(&mut self, shard: Text) {
        let Some(peer) = self.pick_peer(true) else { return };
        let outcome = self.rng.usize(..10);
        self.service.change(|meta| match outcome {
            0 => ClusterEvent::ShardAdoptionFailed {
                meta,
                shard: shard.clone(),
                peer,
                reason: "lease still held".into(),
            },
            1 => ClusterEvent::ShardSkipped {
                meta,
                shard: shard.clone(),
                peer,
                reason: "at its limit".into(),
            },
            _ => ClusterEvent::ShardAdopted {
                meta,
                shard: shard.clone(),
                peer,
            },
        });
        if outcome < 2 {
            self.due.push_back(Step::Adopt(shard));
        }
    }

    /// Starts a random change.
    fn start_change(&mut self) {
        match self.rng.usize(..10) {
            0 | 1 => self.disconnect_peer(),
            2 | 3 => {
                if let Some(peer) = self.pick_peer(false) {
                    self.due.push_back(Step::Connect(peer));
                }
                self.move_shard();
            }
            4 | 5 => self.disconnect_worker(),
            6 if self.rng.usize(..4) == 0 => self.run(Step::RestartSupervisor),
            _ => self.move_shard(),
        }
    }

    fn disconnect_peer(&mut self) {
        let connected = self
            .service
            .cluster()
            .peers
            .values()
            .filter(|peer| peer.connected)
            .count();
        let Some(peer) = self.pick_peer(true).filter(|_| connected > PEERS.len() / 2) else {
            return self.move_shard();
        };
        let cluster = self.service.cluster();
        let orphans = cluster
            .shards
            .iter()
            .filter(|(_, shard)| shard.owner.as_ref() == Some(&peer));
        let orphans: Vec<_> = orphans.map(|(name, _)| name.clone()).collect();
        drop(cluster);
        let confirmations = 1 + self.rng.usize(..connected - 1) as u32;
        self.service.change(|meta| ClusterEvent::PeerDisconnected {
            meta,
            peer: peer.clone(),
            confirmations,
        });
        self.due.extend(orphans.into_iter().map(Step::Adopt));
        self.due.push_back(Step::Connect(peer));
    }

    fn disconnect_worker(&mut self) {
        let cluster = self.service.cluster();
        let workers: Vec<_> = cluster
            .workers
            .iter()
            .map(|(name, spaces)| (name.clone(), spaces.clone()))
            .collect();
        drop(cluster);
        let Some((worker, namespaces)) = pick(&mut self.rng, &workers) else {
            return;
        };
        self.due.push_back(Step::ConnectWorker(worker.clone()));
        self.service.change(|meta| ClusterEvent::WorkerDisconnected {
            meta,
            worker,
            namespaces,
        });
    }

    fn move_shard(&mut self) {
        let shards: Vec<_> = self.service.cluster().shards.keys().cloned().collect();
        if let Some(shard) = pick(&mut self.rng, &shards) {
            self.adopt(shard);
        }
    }

    fn pick_peer(&mut self, connected: bool) -> Option<Text> {
        let cluster = self.service.cluster();
        let peers = cluster.peers.iter().filter(|(_, peer)| peer.connected == connected);
        let peers: Vec<_> = peers.map(|(name, _)| name.clone()).collect();
        drop(cluster);
        pick(&mut self.rng, &peers)
    }
}

fn pick<T: Clone>(rng: &mut Rng, from: &[T]) -> Option<T> {
    rng.choice(from).cloned()
}
