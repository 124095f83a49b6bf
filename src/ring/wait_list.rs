//! The list of waiters that `WaitQueue` keeps behind its lock. It is plain data and runs no foreign code.

use core::task::Waker;

use super::wait_queue::{NotifiedFlag, WakeTarget};
use crate::sync::Arc;

/// The number of a node. Half the size of a `usize`, so that the list and its lock fit one cache line.
type NodeIndex = u32;

const NIL: NodeIndex = NodeIndex::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Idle,
    /// In the list of waiting or of due nodes.
    Listed,
    Notified,
}

/// The kind of the waiter that was popped.
#[derive(PartialEq, Eq)]
enum PoppedKind {
    Task,
    Thread,
}

struct Node {
    state: NodeState,
    unseen: bool,
    previous: NodeIndex,
    next: NodeIndex,
    target: Option<WakeTarget>,
    notified: Option<Arc<NotifiedFlag>>,
}

/// A doubly linked list through the nodes.
#[derive(Clone, Copy)]
struct List {
    head: NodeIndex,
    tail: NodeIndex,
}

impl List {
    const EMPTY: Self = Self { head: NIL, tail: NIL };

    fn is_empty(self) -> bool {
        self.head == NIL
    }
}

pub(super) struct WaitList {
    nodes: Vec<Node>,
    waiting: List,
    due: List,
    /// The number of waiters for a publication that may not see them.
    unseen: u32,
    closed: bool,
    watched: bool,
    /// The watchdog found a due waiter at its last turn.
    overdue: bool,
}

impl WaitList {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            waiting: List::EMPTY,
            due: List::EMPTY,
            unseen: 0,
            closed: false,
            watched: false,
            overdue: false,
        }
    }

    /// Lists the node as waiting. Returns the replaced target and whether the node had been notified. When closed, returns the new
    /// target as an error.
    pub(super) fn register(
        &mut self,
        number: usize,
        notified: &Arc<NotifiedFlag>,
        target: WakeTarget,
    ) -> Result<(Option<WakeTarget>, bool), WakeTarget> {
        if self.closed {
            return Err(target);
        }
        while self.nodes.len() <= number {
            self.nodes.push(Node {
                state: NodeState::Idle,
                unseen: false,
                previous: NIL,
                next: NIL,
                target: None,
                notified: None,
            });
        }
        let node = &mut self.nodes[number];
        node.notified.get_or_insert_with(|| notified.clone());
        let replaced = node.target.replace(target);
        let state = node.state;
        if state != NodeState::Listed {
            notified.clear();
            self.list(number);
        }
        Ok((replaced, state == NodeState::Notified))
    }

    /// Removes the node from its list. Returns its target, and whether it had been notified.
    pub(super) fn cancel(&mut self, number: usize) -> (Option<WakeTarget>, bool) {
        let Some(node) = self.nodes.get_mut(number) else {
            return (None, false);
        };
        let target = node.target.take();
        let state = node.state;
        if state == NodeState::Listed {
            self.unlist(number);
        }
        self.nodes[number].state = NodeState::Idle;
        (target, state == NodeState::Notified)
    }

    /// Makes the node ready for another subscriber.
    pub(super) fn forget(&mut self, number: usize) -> (Option<WakeTarget>, Option<Arc<NotifiedFlag>>) {
        let (target, _) = self.cancel(number);
        (target, self.nodes.get_mut(number).and_then(|node| node.notified.take()))
    }

    /// Returns `true` if the node is listed with this very waker.
    pub(super) fn is_registered_with(&self, number: usize, waker: &Waker) -> bool {
        let node = &self.nodes[number];
        node.state == NodeState::Listed && matches!(&node.target, Some(WakeTarget::Task(own)) if own.will_wake(waker))
    }

    pub(super) fn mark_unseen(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.state == NodeState::Listed && !core::mem::replace(&mut node.unseen, true) {
            self.unseen += 1;
        }
    }

    /// Appends the waiting nodes to the due ones.
    pub(super) fn make_due(&mut self) {
        let waiting = core::mem::replace(&mut self.waiting, List::EMPTY);
        if waiting.is_empty() {
            return;
        }
        if self.due.is_empty() {
            self.due = waiting;
        } else {
            self.nodes[self.due.tail as usize].next = waiting.head;
            self.nodes[waiting.head as usize].previous = self.due.tail;
            self.due.tail = waiting.tail;
        }
    }

    /// Takes up to `most` due nodes, and no more than `batch` holds.
    pub(super) fn pop_due<const MOST: usize>(&mut self, most: usize, batch: &mut WakeBatch<MOST>) {
        for _ in 0..most.min(MOST) {
            if self.pop(batch).is_none() {
                break;
            }
        }
    }

    /// Takes the first due nodes: one task, because its executor spreads the rest, or up to `threads` threads.
    pub(super) fn pop_first<const MOST: usize>(&mut self, threads: usize, batch: &mut WakeBatch<MOST>) {
        for _ in 0..threads.min(MOST) {
            if self.pop(batch) != Some(PoppedKind::Thread) {
                break;
            }
        }
    }

    fn pop<const MOST: usize>(&mut self, batch: &mut WakeBatch<MOST>) -> Option<PoppedKind> {
        if self.due.is_empty() {
            return None;
        }
        let number = self.due.head as usize;
        self.unlist(number);
        if self.due.is_empty() {
            self.overdue = false;
        }
        let node = &mut self.nodes[number];
        node.state = NodeState::Notified;
        let kind = if matches!(node.target, Some(WakeTarget::Thread(_))) {
            PoppedKind::Thread
        } else {
            PoppedKind::Task
        };
        batch.add(number, node.target.take());
        Some(kind)
    }

    /// Sets the flags of the popped nodes; their subscribers may run from here on.
    pub(super) fn set_notified<const MOST: usize>(&self, batch: &WakeBatch<MOST>) {
        for &number in &batch.numbers[..batch.count] {
            if let Some(notified) = &self.nodes[number].notified {
                notified.set();
            }
        }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn has_unseen(&self) -> bool {
        self.unseen != 0
    }

    /// Returns `true` if a cascade could get stuck and no watchdog is watching yet.
    pub(super) fn needs_watch(&self) -> bool {
        let one = if self.waiting.is_empty() {
            self.due
        } else {
            self.waiting
        };
        let several = one.head != one.tail || !self.waiting.is_empty() && !self.due.is_empty();
        several && !self.watched
    }

    pub(super) fn is_watched(&self) -> bool {
        self.watched
    }

    pub(super) fn set_watched(&mut self, watched: bool) {
        self.watched = watched;
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Records whether a node is due now, and returns it.
    pub(super) fn set_overdue(&mut self) -> bool {
        self.overdue = self.has_due();
        self.overdue
    }

    fn list(&mut self, number: usize) {
        let (last, index) = (self.waiting.tail, number as NodeIndex);
        let node = &mut self.nodes[number];
        node.state = NodeState::Listed;
        node.previous = last;
        node.next = NIL;
        if last == NIL {
            self.waiting.head = index;
        } else {
            self.nodes[last as usize].next = index;
        }
        self.waiting.tail = index;
    }

    /// Removes the node from the list that it is in.
    fn unlist(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let (previous, next, index) = (node.previous, node.next, number as NodeIndex);
        if core::mem::take(&mut node.unseen) {
            self.unseen -= 1;
        }
        if previous != NIL {
            self.nodes[previous as usize].next = next;
        } else if self.waiting.head == index {
            self.waiting.head = next;
        } else {
            self.due.head = next;
        }
        if next != NIL {
            self.nodes[next as usize].previous = previous;
        } else if self.waiting.tail == index {
            self.waiting.tail = previous;
        } else {
            self.due.tail = previous;
        }
    }
}

/// Up to `MOST` waiters taken from the list to be woken, kept without an allocation.
pub(super) struct WakeBatch<const MOST: usize> {
    targets: [Option<WakeTarget>; MOST],
    numbers: [usize; MOST],
    count: usize,
}

impl<const MOST: usize> WakeBatch<MOST> {
    pub(super) fn new() -> Self {
        Self {
            targets: [const { None }; MOST],
            numbers: [usize::MAX; MOST],
            count: 0,
        }
    }

    fn add(&mut self, number: usize, target: Option<WakeTarget>) {
        self.targets[self.count] = target;
        self.numbers[self.count] = number;
        self.count += 1;
    }

    /// Takes the targets out, one at a time.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = WakeTarget> {
        self.targets[..self.count].iter_mut().filter_map(Option::take)
    }
}

#[cfg(test)]
mod tests {
    use super::{WaitList, WakeBatch};
    use crate::ring::wait_queue::{NotifiedFlag, WakeTarget};
    use crate::sync::Arc;
    use std::task::Waker;

    fn target() -> WakeTarget {
        WakeTarget::Task(Waker::noop().clone())
    }

    #[test]
    fn waiters_are_notified_once_each_in_order() {
        let mut waiters = WaitList::new();
        let flags: Vec<_> = (0..5).map(|_| Arc::new(NotifiedFlag::new())).collect();
        for (number, notified) in flags.iter().enumerate() {
            assert!(waiters.register(number, notified, target()).is_ok());
        }
        waiters.cancel(0);
        waiters.cancel(4);
        waiters.make_due();
        waiters.cancel(2);
        let mut batch = WakeBatch::<8>::new();
        waiters.pop_due(1, &mut batch);
        waiters.set_notified(&batch);
        assert_eq!(batch.drain().count(), 1);
        assert!(flags[1].is_set());
        assert!(!flags[3].is_set());
        assert!(waiters.has_due());
        let mut batch = WakeBatch::<8>::new();
        waiters.pop_due(9, &mut batch);
        waiters.set_notified(&batch);
        assert_eq!(batch.drain().count(), 1);
        assert!(flags[3].is_set());
        assert!(!waiters.has_due() && !waiters.has_waiting());
    }

    #[test]
    fn cancelling_any_node_of_either_list_keeps_the_rest() {
        for victim in 0..6 {
            let mut waiters = WaitList::new();
            let notified = Arc::new(NotifiedFlag::new());
            for number in 0..3 {
                assert!(waiters.register(number, &notified, target()).is_ok());
            }
            waiters.make_due();
            for number in 3..6 {
                assert!(waiters.register(number, &notified, target()).is_ok());
            }
            assert!(!waiters.cancel(victim).1);
            waiters.make_due();
            let mut batch = WakeBatch::<8>::new();
            waiters.pop_due(usize::MAX, &mut batch);
            assert_eq!(batch.drain().count(), 5);
            assert!(!waiters.has_due());
        }
    }

    #[test]
    fn registering_after_the_close_is_refused() {
        let mut waiters = WaitList::new();
        waiters.close();
        assert!(waiters.register(0, &Arc::new(NotifiedFlag::new()), target()).is_err());
    }
}
