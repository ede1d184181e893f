//! The connections of one sandbox: there are only so many, and the one that was idle for longest makes room.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// All seats.
pub(super) struct Seats {
    most: usize,
    began: Instant,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    places: HashMap<u64, Arc<Place>>,
}

impl Taken {
    fn evict_idlest(&mut self) {
        let rank = |place: &Place| {
            let working = place.working.load(Ordering::Relaxed);
            (working, place.last_active.load(Ordering::Relaxed))
        };
        let idlest = self.places.iter().min_by_key(|(_, place)| rank(place));
        if let Some(number) = idlest.map(|(number, _)| *number)
            && let Some(place) = self.places.remove(&number)
        {
            place.evicted.notify_one();
        }
    }
}

#[derive(Default)]
struct Place {
    /// Milliseconds since the beginning.
    last_active: AtomicU64,
    working: AtomicBool,
    evicted: Notify,
}

impl Seats {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.max(1),
            began: Instant::now(),
            taken: Mutex::default(),
        })
    }

    /// A seat for one more connection. When there is none left, whoever was idle for longest has to leave; one that has
    /// not said yet what it wants leaves first.
    pub(super) fn take(self: &Arc<Self>) -> Seat {
        let place = Arc::new(Place::default());
        place.last_active.store(self.now(), Ordering::Relaxed);
        let mut taken = self.lock();
        if taken.places.len() >= self.most {
            taken.evict_idlest();
        }
        let number = taken.next;
        taken.next += 1;
        taken.places.insert(number, place.clone());
        Seat {
            seats: self.clone(),
            number,
            place,
        }
    }

    /// Has whoever was idle for longest leave, because the process has no room for more.
    pub(super) fn make_room(&self) {
        self.lock().evict_idlest();
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The seat of one connection, free again when it is dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    place: Arc<Place>,
}

impl Seat {
    /// Something was said.
    pub(super) fn touch(&self) {
        self.place.last_active.store(self.seats.now(), Ordering::Relaxed);
    }

    /// The connection carries something that was allowed, until the value is dropped.
    pub(super) fn work(&self) -> Working<'_> {
        self.place.working.store(true, Ordering::Relaxed);
        Working(&self.place)
    }

    /// Returns when the connection has to end: another one needs the seat, or it was silent for too long.
    pub(super) async fn is_over(&self, idle: Duration) {
        let silent = async {
            loop {
                let last = Duration::from_millis(self.place.last_active.load(Ordering::Relaxed));
                let ends = self.seats.began + last + idle;
                if Instant::now() >= ends {
                    return;
                }
                tokio::time::sleep_until(ends).await;
            }
        };
        tokio::select! {
            () = self.place.evicted.notified() => {}
            () = silent => {}
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().places.remove(&self.number);
    }
}

/// See [`Seat::work`].
pub(super) struct Working<'a>(&'a Place);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.working.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn whoever_was_idle_for_longest_leaves_and_one_at_work_leaves_last() {
        let seats = Seats::new(3);
        let step = || tokio::time::advance(Duration::from_millis(5));
        let busy = seats.take();
        let _work = busy.work();
        step().await;
        let [first, second] = [seats.take(), seats.take()];
        step().await;
        first.touch();
        step().await;
        let third = seats.take();
        let gone = |seat: &Seat| seat.is_over(LONG).now_or_never().is_some();
        assert!(gone(&second));
        assert!(!gone(&first) && !gone(&busy) && !gone(&third));
        drop(third);
        let fourth = seats.take();
        assert!(!gone(&first) && !gone(&fourth));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_a_connection_and_activity_does_not() {
        let seats = Seats::new(1);
        let seat = seats.take();
        tokio::time::advance(Duration::from_secs(40)).await;
        seat.touch();
        tokio::time::advance(Duration::from_secs(40)).await;
        assert!(seat.is_over(LONG).now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(21)).await;
        assert!(seat.is_over(LONG).now_or_never().is_some());
    }
}
