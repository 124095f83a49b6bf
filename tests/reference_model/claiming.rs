//! An iterator whose length may be wrong.

use testkit::panics::planned_panic;

/// An iterator that claims one length and yields another, or panics at the end.
pub(crate) struct Claiming<I> {
    pub(crate) claims: usize,
    pub(crate) values: I,
    pub(crate) panics: bool,
}

impl<I: Iterator> Iterator for Claiming<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let value = self.values.next();
        if value.is_none() && self.panics {
            planned_panic();
        }
        value
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.claims, Some(self.claims))
    }
}

impl<I: Iterator> ExactSizeIterator for Claiming<I> {
    fn len(&self) -> usize {
        self.claims
    }
}
