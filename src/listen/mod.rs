//! One LISTEN connection for any number of subscriptions.
