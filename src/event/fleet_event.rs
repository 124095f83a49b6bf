//! A ready-made event type: what happens to a fleet of agents.

use serde::{Deserialize, Serialize};

use super::StreamEvent;

/// Something that happened to an agent of a fleet. Each agent has its own stream, named by its id. Use
/// [`subscribe_all`](crate::bus::EventBus::subscribe_all) to get the events of agents whose ids are not known yet.
///
/// Services with their own event type do not need this one: the bus takes any [`StreamEvent`].
///
/// ```
/// use doorbell::event::{FleetEvent, FleetEventKind, StreamEvent};
///
/// let event = FleetEvent::new("agent-1", FleetEventKind::AgentDiscovered { address: "10.0.0.7:4500".to_owned() });
/// assert_eq!((event.stream_key(), event.seq()), ("agent-1", 0));
/// let json = serde_json::to_string(&event).unwrap();
/// assert_eq!(json, r#"{"agent_id":"agent-1","seq":0,"type":"agent_discovered","address":"10.0.0.7:4500"}"#);
/// assert_eq!(serde_json::from_str::<FleetEvent>(&json).unwrap(), event);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FleetEvent {
    /// The id of the agent, which is also the key of the stream.
    pub agent_id: String,
    /// The number in the agent's stream, or 0 until the store has assigned one.
    #[serde(default)]
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub kind: FleetEventKind,
}

/// What happened to an agent.
///
/// ```
/// let kind = doorbell::event::FleetEventKind::StatusChanged { status: "draining".to_owned() };
/// assert!(serde_json::to_string(&kind).unwrap().contains("status_changed"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum FleetEventKind {
    /// A new agent was found.
    AgentDiscovered {
        /// The address of the agent.
        address: String,
    },
    /// The agent has connected.
    AgentConnected,
    /// The agent has disconnected, or is presumed to be gone.
    AgentDisconnected {
        /// The reason.
        reason: String,
    },
    /// The agent reports a new status.
    StatusChanged {
        /// The status.
        status: String,
    },
    /// A task was assigned to the agent.
    TaskAssigned {
        /// The id of the task.
        task_id: String,
    },
    /// The agent has finished a task.
    TaskFinished {
        /// The id of the task.
        task_id: String,
        /// Whether the task succeeded.
        succeeded: bool,
    },
    /// The agent is retired and will not return.
    AgentRetired,
    /// An event that is specific to a service.
    Custom {
        /// The kind of event.
        name: String,
        /// The content, in a format that publishers and subscribers agree on.
        data: String,
    },
}

impl FleetEvent {
    /// Creates an event without a number.
    ///
    /// ```
    /// use doorbell::event::{FleetEvent, FleetEventKind};
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

    /// Creates an event of a service-specific kind, without a number.
    ///
    /// ```
    /// let event = doorbell::event::FleetEvent::custom("agent-1", "note", "hello");
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
