//! The state of a cluster as a console shows it. Only events change it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use doorbell::cluster::{ClusterEvent, Text};
use serde_json::{Value, json};

/// The state of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: Text,
    pub(crate) connected: bool,
    /// The number of other peers that confirmed that it is gone.
    pub(crate) confirmations: u32,
}

/// The state of a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) owner: Option<Text>,
    /// Failed attempts to take it over since the last successful one.
    pub(crate) failures: u32,
}

/// The whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) peers: BTreeMap<Text, Peer>,
    pub(crate) shards: BTreeMap<Text, Shard>,
    /// Each worker's namespaces.
    pub(crate) workers: BTreeMap<Text, Arc<[Text]>>,
    pub(crate) supervisors: BTreeSet<Text>,
}

impl Cluster {
    /// Applies an event. `apply` in page.html does the same.
    pub(crate) fn apply(&mut self, event: &ClusterEvent) {
        match event {
            ClusterEvent::PeerJoined { peer, address, .. } => {
                self.peers.entry(peer.clone()).or_default().address = address.clone();
            }
            ClusterEvent::PeerConnected { peer, .. } => {
                let peer = self.peers.entry(peer.clone()).or_default();
                peer.connected = true;
                peer.confirmations = 0;
            }
            ClusterEvent::PeerDisconnected {
                peer, confirmations, ..
            } => {
                let gone = self.peers.entry(peer.clone()).or_default();
                gone.connected = false;
                gone.confirmations = *confirmations;
                for shard in self.shards.values_mut() {
                    shard.owner.take_if(|owner| owner == peer);
                }
            }
            ClusterEvent::ShardAdopted { shard, peer, .. } => {
                let owner = Some(peer.clone());
                self.shards.insert(shard.clone(), Shard { owner, failures: 0 });
            }
            ClusterEvent::ShardAdoptionFailed { shard, .. } => {
                self.shards.entry(shard.clone()).or_default().failures += 1;
            }
            ClusterEvent::WorkerConnected { worker, namespaces, .. } => {
                self.workers.insert(worker.clone(), namespaces.clone());
            }
            ClusterEvent::WorkerDisconnected { worker, .. } => {
                self.workers.remove(worker);
            }
            ClusterEvent::SupervisorStarted { supervisor, .. } => {
                self.supervisors.insert(supervisor.clone());
            }
            ClusterEvent::SupervisorStopped { supervisor, .. } => {
                self.supervisors.remove(supervisor);
            }
            // Skipped shards, custom events and future variants change nothing.
            _ => {}
        }
    }

    /// The cluster as JSON, for a snapshot.
    pub(crate) fn to_json(&self) -> Value {
        let peers: BTreeMap<_, _> = self
            .peers
            .iter()
            .map(|(name, peer)| (&**name, peer_json(peer)))
            .collect();
        let shards: BTreeMap<_, _> = self
            .shards
            .iter()
            .map(|(name, shard)| {
                (
                    &**name,
                    json!({ "owner": shard.owner.as_deref(), "failures": shard.failures }),
                )
            })
            .collect();
        let workers: BTreeMap<_, Vec<&str>> = self
            .workers
            .iter()
            .map(|(name, namespaces)| (&**name, namespaces.iter().map(|namespace| &**namespace).collect()))
            .collect();
        let supervisors: Vec<&str> = self.supervisors.iter().map(|name| &**name).collect();
        json!({ "peers": peers, "shards": shards, "workers": workers, "supervisors": supervisors })
    }
}

fn peer_json(peer: &Peer) -> Value {
    json!({ "address": &*peer.address, "connected": peer.connected, "confirmations": peer.confirmations })
}
