//! The state of a cluster, as a console shows it: changed by events and by nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use doorbell::cluster::{ClusterEvent, Text};
use serde_json::{Value, json};

/// What is known about a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: Text,
    pub(crate) connected: bool,
    /// How many others have confirmed that it is gone.
    pub(crate) confirmations: u32,
}

/// What is known about a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) owner: Option<Text>,
    /// Attempts to take it over that did not work, since the last that did.
    pub(crate) failures: u32,
}

/// The whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) peers: BTreeMap<Text, Peer>,
    pub(crate) shards: BTreeMap<Text, Shard>,
    /// Each with what it works for.
    pub(crate) workers: BTreeMap<Text, Arc<[Text]>>,
    pub(crate) supervisors: BTreeSet<Text>,
}

impl Cluster {
    /// The change that an event tells of. The page does the same in its own language.
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
            // A shard that was left alone, what only others understand, and what is not known yet: nothing changes.
            _ => {}
        }
    }

    /// As a snapshot shows it.
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
