//! Starts the subscribers and waits for them.

use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use doorbell::ring::Subscriber;
use tokio::runtime::Runtime;
use tokio::task;

use crate::account::Outcome;
use crate::event::Event;
use crate::interrupt::Interrupt;
use crate::options::Options;
use crate::subscribers;

/// The three ways to subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Task,
    Thread,
    Slow,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Task => "task",
            Self::Thread => "thread",
            Self::Slow => "slow",
        })
    }
}

/// A subscriber that has ended.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) kind: Kind,
    /// Counts the members of a kind from 1.
    pub(crate) number: usize,
    pub(crate) outcome: Outcome,
}

/// All subscribers, running.
#[derive(Debug)]
pub(crate) struct Team {
    runtime: Runtime,
    tasks: Vec<task::JoinHandle<Outcome>>,
    threads: Vec<JoinHandle<Outcome>>,
    slow: Vec<task::JoinHandle<Outcome>>,
}

impl Team {
    /// Everyone gets a clone of `first`, and so the same start.
    pub(crate) fn start(options: &Options, first: &Subscriber<Event>, interrupt: &Interrupt) -> io::Result<Self> {
        let runtime = Runtime::new()?;
        let delay = Duration::from_millis(options.delay_ms);
        let tasks = (0..options.tasks)
            .map(|_| runtime.spawn(subscribers::task(first.clone())))
            .collect();
        let slow = (0..options.slow)
            .map(|_| runtime.spawn(subscribers::slow(first.clone(), delay, interrupt.clone())))
            .collect();
        let threads = (0..options.threads)
            .map(|_| {
                let events = first.clone();
                thread::Builder::new().spawn(move || subscribers::thread(events))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self {
            runtime,
            tasks,
            threads,
            slow,
        })
    }

    /// Waits until everyone has drained the closed channel.
    pub(crate) fn join(self) -> Vec<Member> {
        let Self {
            runtime,
            tasks,
            threads,
            slow,
        } = self;
        let join_task = |handle: task::JoinHandle<_>| {
            let outcome = runtime.block_on(handle);
            outcome.unwrap_or_else(|error| resume_unwind(error.into_panic()))
        };
        let join_thread = |handle: JoinHandle<_>| handle.join().unwrap_or_else(|panic| resume_unwind(panic));
        let mut members = Vec::new();
        members.extend(numbered(Kind::Task, tasks.into_iter().map(join_task)));
        members.extend(numbered(Kind::Thread, threads.into_iter().map(join_thread)));
        members.extend(numbered(Kind::Slow, slow.into_iter().map(join_task)));
        members
    }
}

fn numbered(kind: Kind, outcomes: impl Iterator<Item = Outcome>) -> impl Iterator<Item = Member> {
    (1..)
        .zip(outcomes)
        .map(move |(number, outcome)| Member { kind, number, outcome })
}
