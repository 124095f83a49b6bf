//! The table of waiters, as `bell` keeps it behind its lock: plain data, no foreign code.

use core::task::Waker;

use super::bell::{Notice, Wakee};
use crate::sync::Arc;

const NIL: usize = usize::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// In the list of the waiting or of the due.
    Listed,
    Notified,
}

/// What was popped.
#[derive(PartialEq, Eq)]
enum Kind {
    Task,
    Thread,
}

struct Node {
    state: State,
    unheard: bool,
    previous: usize,
    next: usize,
    wakee: Option<Wakee>,
    notice: Option<Arc<Notice>>,
}

/// A doubly linked list through the nodes.
#[derive(Clone, Copy)]
struct List {
    head: usize,
    tail: usize,
}

impl List {
    const EMPTY: Self = Self { head: NIL, tail: NIL };

    fn is_empty(self) -> bool {
        self.head == NIL
    }
}

pub(super) struct Waiters {
    nodes: Vec<Node>,
    waiting: List,
    due: List,
    listed: usize,
    /// How many wait for a publication that may not look for them.
    unheard: usize,
    closed: bool,
    watched: bool,
    /// The ringer has found somebody due at its last turn.
    overdue: bool,
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            waiting: List::EMPTY,
            due: List::EMPTY,
            listed: 0,
            unheard: 0,
            closed: false,
            watched: false,
            overdue: false,
        }
    }

    /// Lists the node as waiting. Gives back the wakee that was replaced and whether the node had been notified, or as an error the
    /// new wakee when closed.
    pub(super) fn register(
        &mut self,
        number: usize,
        notice: &Arc<Notice>,
        wakee: Wakee,
    ) -> Result<(Option<Wakee>, bool), Wakee> {
        if self.closed {
            return Err(wakee);
        }
        while self.nodes.len() <= number {
            self.nodes.push(Node {
                state: State::Idle,
                unheard: false,
                previous: NIL,
                next: NIL,
                wakee: None,
                notice: None,
            });
        }
        let node = &mut self.nodes[number];
        node.notice.get_or_insert_with(|| notice.clone());
        let replaced = node.wakee.replace(wakee);
        let state = node.state;
        if state != State::Listed {
            notice.take_back();
            self.list(number);
        }
        Ok((replaced, state == State::Notified))
    }

    /// Takes the node out. Gives back its wakee, and whether it had been notified.
    pub(super) fn cancel(&mut self, number: usize) -> (Option<Wakee>, bool) {
        let Some(node) = self.nodes.get_mut(number) else {
            return (None, false);
        };
        let wakee = node.wakee.take();
        let state = node.state;
        if state == State::Listed {
            self.unlist(number);
        }
        self.nodes[number].state = State::Idle;
        (wakee, state == State::Notified)
    }

    /// Makes the node ready for another owner.
    pub(super) fn forget(&mut self, number: usize) -> (Option<Wakee>, Option<Arc<Notice>>) {
        let (wakee, _) = self.cancel(number);
        (wakee, self.nodes.get_mut(number).and_then(|node| node.notice.take()))
    }

    /// Is the node listed to be told by this very waker?
    pub(super) fn keeps(&self, number: usize, waker: &Waker) -> bool {
        let node = &self.nodes[number];
        node.state == State::Listed && matches!(&node.wakee, Some(Wakee::Task(own)) if own.will_wake(waker))
    }

    pub(super) fn mark_unheard(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.state == State::Listed && !core::mem::replace(&mut node.unheard, true) {
            self.unheard += 1;
        }
    }

    /// Moves all that are waiting behind those that are due.
    pub(super) fn make_due(&mut self) {
        let waiting = core::mem::replace(&mut self.waiting, List::EMPTY);
        if waiting.is_empty() {
            return;
        }
        if self.due.is_empty() {
            self.due = waiting;
        } else {
            self.nodes[self.due.tail].next = waiting.head;
            self.nodes[waiting.head].previous = self.due.tail;
            self.due.tail = waiting.tail;
        }
    }

    /// Takes up to `most` (and as many as `told` holds) of the due.
    pub(super) fn pop_due<const MOST: usize>(&mut self, most: usize, told: &mut Told<MOST>) {
        for _ in 0..most.min(MOST) {
            if self.pop(told).is_none() {
                break;
            }
        }
    }

    /// Takes the first of the due: one task, whose executor spreads the rest, or up to `threads` threads.
    pub(super) fn pop_first<const MOST: usize>(&mut self, threads: usize, told: &mut Told<MOST>) {
        for _ in 0..threads.min(MOST) {
            if self.pop(told) != Some(Kind::Thread) {
                break;
            }
        }
    }

    fn pop<const MOST: usize>(&mut self, told: &mut Told<MOST>) -> Option<Kind> {
        if self.due.is_empty() {
            return None;
        }
        let number = self.due.head;
        self.unlist(number);
        if self.due.is_empty() {
            self.overdue = false;
        }
        let node = &mut self.nodes[number];
        node.state = State::Notified;
        let kind = if matches!(node.wakee, Some(Wakee::Thread(_))) {
            Kind::Thread
        } else {
            Kind::Task
        };
        told.add(number, node.wakee.take());
        Some(kind)
    }

    /// Tells the owners of what was popped, who may run from here on.
    pub(super) fn give_notice<const MOST: usize>(&self, told: &Told<MOST>) {
        for &number in &told.numbers[..told.count] {
            if let Some(notice) = &self.nodes[number].notice {
                notice.give();
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

    pub(super) fn has_unheard(&self) -> bool {
        self.unheard != 0
    }

    /// Could a hand-on be needed, and is nobody watching yet?
    pub(super) fn needs_watch(&self) -> bool {
        self.listed > 1 && !self.watched
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

    /// Notes whether anybody is due now, and says so.
    pub(super) fn set_overdue(&mut self) -> bool {
        self.overdue = self.has_due();
        self.overdue
    }

    fn list(&mut self, number: usize) {
        let last = self.waiting.tail;
        let node = &mut self.nodes[number];
        node.state = State::Listed;
        node.previous = last;
        node.next = NIL;
        if last == NIL {
            self.waiting.head = number;
        } else {
            self.nodes[last].next = number;
        }
        self.waiting.tail = number;
        self.listed += 1;
    }

    /// Takes the node out of whichever list it is in.
    fn unlist(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let (previous, next) = (node.previous, node.next);
        if core::mem::take(&mut node.unheard) {
            self.unheard -= 1;
        }
        if previous != NIL {
            self.nodes[previous].next = next;
        } else if self.waiting.head == number {
            self.waiting.head = next;
        } else {
            self.due.head = next;
        }
        if next != NIL {
            self.nodes[next].previous = previous;
        } else if self.waiting.tail == number {
            self.waiting.tail = previous;
        } else {
            self.due.tail = previous;
        }
        self.listed -= 1;
    }
}

/// Those taken from the table to be told, up to `MOST` of them, without allocating.
pub(super) struct Told<const MOST: usize> {
    wakees: [Option<Wakee>; MOST],
    numbers: [usize; MOST],
    count: usize,
}

impl<const MOST: usize> Told<MOST> {
    pub(super) fn new() -> Self {
        Self {
            wakees: [const { None }; MOST],
            numbers: [NIL; MOST],
            count: 0,
        }
    }

    fn add(&mut self, number: usize, wakee: Option<Wakee>) {
        self.wakees[self.count] = wakee;
        self.numbers[self.count] = number;
        self.count += 1;
    }

    /// Takes the wakees out, one by one.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Wakee> {
        self.wakees[..self.count].iter_mut().filter_map(Option::take)
    }
}

#[cfg(test)]
mod tests {
    use super::{Told, Waiters};
    use crate::ring::bell::{Notice, Wakee};
    use crate::sync::Arc;
    use std::task::Waker;

    fn wakee() -> Wakee {
        Wakee::Task(Waker::noop().clone())
    }

    #[test]
    fn waiters_are_told_once_each_and_in_order() {
        let mut waiters = Waiters::new();
        let notices: Vec<_> = (0..5).map(|_| Arc::new(Notice::new())).collect();
        for (number, notice) in notices.iter().enumerate() {
            assert!(waiters.register(number, notice, wakee()).is_ok());
        }
        waiters.cancel(0);
        waiters.cancel(4);
        waiters.make_due();
        waiters.cancel(2);
        let mut told = Told::<8>::new();
        waiters.pop_due(1, &mut told);
        waiters.give_notice(&told);
        assert_eq!(told.drain().count(), 1);
        assert!(notices[1].is_given());
        assert!(!notices[3].is_given());
        assert!(waiters.has_due());
        let mut told = Told::<8>::new();
        waiters.pop_due(9, &mut told);
        waiters.give_notice(&told);
        assert_eq!(told.drain().count(), 1);
        assert!(notices[3].is_given());
        assert!(!waiters.has_due() && !waiters.has_waiting());
    }

    #[test]
    fn cancelling_any_node_of_either_list_keeps_the_rest() {
        for victim in 0..6 {
            let mut waiters = Waiters::new();
            let notice = Arc::new(Notice::new());
            for number in 0..3 {
                assert!(waiters.register(number, &notice, wakee()).is_ok());
            }
            waiters.make_due();
            for number in 3..6 {
                assert!(waiters.register(number, &notice, wakee()).is_ok());
            }
            assert!(!waiters.cancel(victim).1);
            waiters.make_due();
            let mut told = Told::<8>::new();
            waiters.pop_due(usize::MAX, &mut told);
            assert_eq!(told.drain().count(), 5);
            assert!(!waiters.has_due());
        }
    }

    #[test]
    fn nobody_registers_after_the_close() {
        let mut waiters = Waiters::new();
        waiters.close();
        assert!(waiters.register(0, &Arc::new(Notice::new()), wakee()).is_err());
    }
}
