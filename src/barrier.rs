//! An asymmetric memory barrier: free where it is frequent, dear where it is rare.
//!
//! Two threads that each store and then load need a full fence between the two, on both sides, for at least one of them to see
//! the other's store. With an asymmetric barrier, the frequent side only keeps its compiler from reordering ([`sync::light_barrier`]),
//! and the rare side makes every other thread of the process execute a full fence at whatever point it has reached ([`heavy`]).
//! For each of them, that point lies either before its store, and then it sees what the rare side stored; or after it, and then
//! the rare side sees its store.
//!
//! Linux has such a barrier, `membarrier`. Elsewhere, and where a sandbox forbids it, both sides fence.
//!
//! [`sync::light_barrier`]: crate::sync::light_barrier

use std::sync::OnceLock;

/// Returns `true` if this process can use [`heavy`]. The answer never changes, so both sides can rely on it.
pub(crate) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(system::register)
}

/// Makes every thread of this process execute a full fence, this one included. Returns `false` if the system refused; then nothing
/// may be concluded.
///
/// Takes some microseconds: it interrupts every core that runs a thread of this process.
#[cold]
pub(crate) fn heavy() -> bool {
    // A child of `fork` may have to register again.
    system::fence_everywhere() || system::register() && system::fence_everywhere()
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    fn membarrier(command: libc::c_int) -> bool {
        const NO_FLAGS: libc::c_uint = 0;
        const NO_CPU: libc::c_int = 0;
        // SAFETY: the call takes three integers and touches no memory of this process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, NO_FLAGS, NO_CPU) == 0 }
    }

    pub(super) fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    pub(super) fn fence_everywhere() -> bool {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn fence_everywhere() -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    #[test]
    fn a_registered_process_can_fence_everywhere() {
        assert_eq!(super::is_available(), super::heavy());
    }
}
