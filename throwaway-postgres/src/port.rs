//! Reserves a port on 127.0.0.1, including while no server listens on it.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener};

use crate::Error;
use crate::shared_dir::SharedDir;

/// Below Linux's range for outgoing connections, so that none takes the port of a server that is being restarted.
const RANGE: std::ops::Range<u16> = 10_000..32_000;
const TRIES: u32 = 1_000;

/// A reserved port. The lock excludes other throwaway servers.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    _lock: File,
}

impl Port {
    pub(crate) fn reserve(shared_dir: &SharedDir) -> Result<Self, Error> {
        for _ in 0..TRIES {
            let number = RANGE.start + (RandomState::new().build_hasher().finish() % RANGE.len() as u64) as u16;
            let Some(lock) = shared_dir.try_lock(&format!("port-{number}"))? else {
                continue;
            };
            // Another program may listen on it.
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Ok(Self { number, _lock: lock });
            }
        }
        Err(Error::NoPort { tries: TRIES })
    }
}
