//! A cluster that lives: peers come and go, others adopt their shards, workers change.

use std::collections::VecDeque;
use std::sync::Arc;

use doorbell::cluster::{ClusterEvent, Text};
use fastrand::Rng;

use crate::service::Service;

const PEERS: [&str; 6] = ["alder", "birch", "cedar", "elm", "larch", "rowan"];
const NAMESPACES: [&str; 5] = ["billing", "exports", "mail", "search", "thumbnails"];
const SHARDS: usize = 24;
const WORKERS: usize = 7;

/// Short names are copied.
type Name = Text;

/// What happens next.
enum Step {
    Join(Name),
    Connect(Name),
    Adopt(Name),
    Hire(Name),
    Supervise,
    Restart,
}

/// Makes one event after the other.
pub(crate) struct Simulation {
    service: Arc<Service>,
    /// What follows from what has happened.
    due: VecDeque<Step>,
    rng: Rng,
}

impl Simulation {
    /// A cluster at its start. The same seed gives the same events.
    pub(crate) fn new(service: Arc<Service>, seed: u64) -> Self {
        let peers = PEERS.map(Name::from);
        let mut due = VecDeque::from([Step::Supervise]);
        due.extend(peers.iter().cloned().map(Step::Join));
        due.extend(peers.into_iter().map(Step::Connect));
        due.extend((0..SHARDS).map(|shard| Step::Adopt(format!("shard-{shard:02}").into())));
        due.extend((1..=WORKERS).map(|worker| Step::Hire(format!("worker-{worker}").into())));
        Self {
            service,
            due,
            rng: Rng::with_seed(seed),
        }
    }

    /// Is the cluster still being put together?
    pub(crate) fn is_starting(&self) -> bool {
        self.due.len() > SHARDS / 2
    }

    /// Makes the next event.
    pub(crate) fn step(&mut self) {
        match self.due.pop_front() {
            Some(step) => self.take(step),
            None => self.happen(),
        }
    }

    fn take(&mut self, step: Step) {
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
            Step::Hire(worker) => {
                let from = self.rng.usize(..NAMESPACES.len());
                let namespaces = NAMESPACES[from..].iter().take(2).copied().map(Name::from).collect();
                service.change(|meta| ClusterEvent::WorkerConnected {
                    meta,
                    worker,
                    namespaces,
                });
            }
            Step::Supervise => {
                let supervisor = "supervisor-main".into();
                service.change(|meta| ClusterEvent::SupervisorStarted { meta, supervisor });
            }
            Step::Restart => {
                let supervisor = "supervisor-main".into();
                let reason = "new configuration".into();
                service.change(|meta| ClusterEvent::SupervisorStopped {
                    meta,
                    supervisor,
                    reason,
                });
                self.due.push_back(Step::Supervise);
            }
        }
    }

    /// Some connected peer takes the shard, or tries to, or leaves it alone; then another has its turn.
    fn adopt(&mut self, shard: Name) {
        let Some(peer) = self.pick_peer(true) else { return };
        let luck = self.rng.usize(..10);
        self.service.change(|meta| match luck {
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
        if luck < 2 {
            self.due.push_back(Step::Adopt(shard));
        }
    }

    /// Something new.
    fn happen(&mut self) {
        match self.rng.usize(..10) {
            0 | 1 => self.lose_peer(),
            2 | 3 => {
                if let Some(peer) = self.pick_peer(false) {
                    self.due.push_back(Step::Connect(peer));
                }
                self.move_shard();
            }
            4 | 5 => self.lose_worker(),
            6 if self.rng.usize(..4) == 0 => self.take(Step::Restart),
            _ => self.move_shard(),
        }
    }

    fn lose_peer(&mut self) {
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

    fn lose_worker(&mut self) {
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
        self.due.push_back(Step::Hire(worker.clone()));
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

    fn pick_peer(&mut self, connected: bool) -> Option<Name> {
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
