//! A migrated store in its own database.

use std::ops::Deref;

use doorbell::store::PostgresStore;
use throwaway_postgres::Database;

/// A store and its database.
pub(crate) struct Store {
    store: PostgresStore,
    pub(crate) database: Database,
}

impl Store {
    pub(crate) async fn fresh() -> Self {
        let database = Database::fresh().unwrap();
        let store = PostgresStore::connect(&database.url()).await.unwrap();
        store.migrate().await.unwrap();
        Self { store, database }
    }

    /// Runs SQL with psql and returns its output.
    pub(crate) fn psql(&self, sql: &str) -> String {
        self.database.psql(sql).unwrap()
    }
}

impl Deref for Store {
    type Target = PostgresStore;

    fn deref(&self) -> &PostgresStore {
        &self.store
    }
}
