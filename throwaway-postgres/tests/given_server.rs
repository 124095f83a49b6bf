//! `DATABASE_URL`. One test, because it changes the environment of its process.

use throwaway_postgres::{Database, Error, Server};

#[test]
fn databases_are_created_on_the_server_that_database_url_names() {
    let server = Server::start().unwrap();
    let databases = || server.psql("SELECT count(*) FROM pg_database").unwrap();
    let before = databases();

    // SAFETY: this process has no other thread that reads the environment: this file has one test.
    unsafe { std::env::set_var("DATABASE_URL", server.url()) };
    let database = Database::fresh().unwrap();
    assert_eq!(
        database.psql("SELECT inet_server_port()").unwrap(),
        server.port().to_string()
    );
    assert!(matches!(database.server(), Err(Error::NotOurs)));
    assert_ne!(databases(), before);
    drop(database);
    assert_eq!(databases(), before);

    // SAFETY: as above.
    unsafe { std::env::set_var("DATABASE_URL", "host=127.0.0.1") };
    assert!(matches!(Database::fresh(), Err(Error::UnusableUrl)));
}
