//! The bus's own event type: what happens to a fleet of agents.

use serde::{Deserialize, Serialize};

use super::StreamEvent;

/// Something that happened to an agent of a fleet. Each agent has a stream of its own, named by its id; so the first event
/// of an agent that nobody knew is in a stream that nobody can have subscribed to by key, and
/// [`subscribe_all`](super::EventBus::subscribe_all) is how to meet it.
///
/// A service with events of its own does not need this type: every part of the bus takes any [`StreamEvent`].
///
/// ```
/// use doorbell::bus::{FleetEvent, FleetEventKind, StreamEvent};
///
/// let event = FleetEvent::new("agent-1", FleetEventKind::AgentDiscovered { address: "10.0.0.7:4500".to_owned() });
/// assert_eq!((event.stream_key(), event.seq()), ("agent-1", 0));
/// let json = serde_json::to_string(&event).unwrap();
/// assert_eq!(json, r#"{"agent_id":"agent-1","seq":0,"type":"agent_discovered","address":"10.0.0.7:4500"}"#);
/// assert_eq!(serde_json::from_str::<FleetEvent>(&json).unwrap(), event);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FleetEvent {
    /// The agent, and with it the stream.
    pub agent_id: String,
    /// The number in the agent's stream; 0 until the store has given one.
    #[serde(default)]
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: FleetEventKind,
}

/// What happened to an agent. More variants may come, so a `match` needs a last arm.
///
/// ```
/// let kind = doorbell::bus::FleetEventKind::StatusChanged { status: "draining".to_owned() };
/// assert!(serde_json::to_string(&kind).unwrap().contains("status_changed"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum FleetEventKind {
    /// An agent that was not known has been found.
    AgentDiscovered {
        /// Where it can be reached.
        address: String,
    },
    /// The agent has connected.
    AgentConnected,
    /// The agent is held to be gone.
    AgentDisconnected {
        /// Why.
        reason: String,
    },
    /// The agent says that it is in another state.
    StatusChanged {
        /// The state.
        status: String,
    },
    /// The agent has been given a task.
    TaskAssigned {
        /// The task.
        task_id: String,
    },
    /// The agent has ended a task.
    TaskFinished {
        /// The task.
        task_id: String,
        /// Whether it did what it was for.
        succeeded: bool,
    },
    /// The agent will not come back.
    AgentRetired,
    /// Something that only a particular service knows of.
    Custom {
        /// What kind of event it is.
        name: String,
        /// The rest, in a form on which the sender and its readers agree.
        data: String,
    },
}

impl FleetEvent {
    /// An event without a number.
    ///
    /// ```
    /// use doorbell::bus::{FleetEvent, FleetEventKind};
    ///
    /// assert_eq!(FleetEvent::new("agent-1", FleetEventKind::AgentConnected).seq, 0);
    /// ```
    #[must_use]
    pub fn new(agent_id: impl Into<String>, kind: FleetEventKind) -> Self {
        Self {
            agent_id: agent_id.into(),
            seq: 0,
            kind,
        }
    }

    /// An event of a kind that only a particular service knows of, without a number.
    ///
    /// ```
    /// let event = doorbell::bus::FleetEvent::custom("agent-1", "note", "hello");
    /// assert_eq!(event.agent_id, "agent-1");
    /// ```
    #[must_use]
    pub fn custom(agent_id: impl Into<String>, name: impl Into<String>, data: impl Into<String>) -> Self {
        Self::new(
            agent_id,
            FleetEventKind::Custom {
                name: name.into(),
                data: data.into(),
            },
        )
    }
}

impl StreamEvent for FleetEvent {
    fn stream_key(&self) -> &str {
        &self.agent_id
    }

    fn seq(&self) -> u64 {
        self.seq
    }

    fn with_seq(mut self, seq: u64) -> Self {
        self.seq = seq;
        self
    }
}
