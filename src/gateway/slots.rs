//! Limits the connections of one sandbox. When all slots are in use, the connection that was idle for longest is closed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The connection slots of one sandbox.
pub(super) struct ConnectionSlots {
    limit: usize,
    started: Instant,
    used: Mutex<Vec<Arc<SlotState>>>,
}

#[derive(Default)]
struct SlotState {
    /// Milliseconds since [`ConnectionSlots::started`].
    last_activity: AtomicU64,
    active: AtomicBool,
    evicted: Notify,
}

impl ConnectionSlots {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: limit.max(1),
            started: Instant::now(),
            used: Mutex::default(),
        })
    }

    /// A slot for a new connection. When none is free, another connection is evicted.
    pub(super) fn acquire(self: &Arc<Self>) -> ConnectionSlot {
        let state = Arc::new(SlotState::default());
        state.last_activity.store(self.now(), Ordering::Relaxed);
        let mut used = self.lock();
        if used.len() >= self.limit {
            evict_idlest(&mut used);
        }
        used.push(state.clone());
        ConnectionSlot {
            slots: self.clone(),
            state,
        }
    }

    /// Evicts a connection, because the process cannot open more files.
    pub(super) fn evict_one(&self) {
        evict_idlest(&mut self.lock());
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<SlotState>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Evicts the connection that was idle for longest, and first those that have not sent a request yet.
fn evict_idlest(used: &mut Vec<Arc<SlotState>>) {
    let rank = |(_, slot): &(usize, &Arc<SlotState>)| {
        let active = slot.active.load(Ordering::Relaxed);
        (active, slot.last_activity.load(Ordering::Relaxed))
    };
    let idlest = used.iter().enumerate().min_by_key(rank);
    if let Some(index) = idlest.map(|(index, _)| index) {
        used.swap_remove(index).evicted.notify_one();
    }
}

/// The slot of one connection. Dropping it frees the slot.
pub(super) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    state: Arc<SlotState>,
}

impl ConnectionSlot {
    /// Records activity.
    pub(super) fn touch(&self) {
        self.state
            .last_activity
            .store(self.slots.now(), Ordering::Relaxed);
    }

    /// Marks the connection as carrying an allowed request, until the value is dropped.
    pub(super) fn activate(&self) -> ActiveSlot<'_> {
        self.state.active.store(true, Ordering::Relaxed);
        ActiveSlot(&self.state)
    }

    /// Returns when the connection must be closed: it was evicted, or idle for this long.
    pub(super) async fn expired(&self, idle: Duration) {
        let idle = async {
            loop {
                let last = Duration::from_millis(self.state.last_activity.load(Ordering::Relaxed));
                let end = self.slots.started + last + idle;
                if Instant::now() >= end {
                    return;
                }
                tokio::time::sleep_until(end).await;
            }
        };
        tokio::select! {
            () = self.state.evicted.notified() => {}
            () = idle => {}
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.lock().retain(|used| !Arc::ptr_eq(used, &self.state));
    }
}

/// See [`ConnectionSlot::activate`].
pub(super) struct ActiveSlot<'a>(&'a SlotState);

impl Drop for ActiveSlot<'_> {
    fn drop(&mut self) {
        self.0.active.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn the_idlest_connection_is_evicted_and_an_active_one_last() {
        let slots = ConnectionSlots::new(3);
        let step = || tokio::time::advance(Duration::from_millis(5));
        let busy = slots.acquire();
        let _work = busy.activate();
        step().await;
        let [first, second] = [slots.acquire(), slots.acquire()];
        step().await;
        first.touch();
        step().await;
        let third = slots.acquire();
        let gone = |slot: &ConnectionSlot| slot.expired(LONG).now_or_never().is_some();
        assert!(gone(&second));
        assert!(!gone(&first) && !gone(&busy) && !gone(&third));
        drop(third);
        let fourth = slots.acquire();
        assert!(!gone(&first) && !gone(&fourth));
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_expires_and_an_active_one_does_not() {
        let slots = ConnectionSlots::new(1);
        let slot = slots.acquire();
        tokio::time::advance(Duration::from_secs(40)).await;
        slot.touch();
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(slot.expired(LONG).now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(21)).await;
        assert!(slot.expired(LONG).now_or_never().is_some());
    }
}
