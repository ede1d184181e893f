//! Works on many items on all processors.

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// With less to read, a thread costs more than it saves.
const BYTES_WORTH_A_THREAD: u64 = 1 << 20;

/// Applies `work` to each item, on all processors if there is enough to read, and returns the results in the same order.
/// `bytes` is how much must be read for an item.
pub(super) fn map<T: Sync, R: Send>(
    items: &[T],
    bytes: impl Fn(&T) -> u64,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let bytes: Vec<u64> = items.iter().map(bytes).collect();
    // The longest first, so that the threads end at about the same time.
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|index| Reverse(bytes[*index]));

    let next = AtomicUsize::new(0);
    let part = || {
        let mut done = Vec::new();
        while let Some(index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((*index, work(&items[*index])));
        }
        done
    };
    let mut done = on_threads(threads_for(bytes.iter().sum()), part);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn threads_for(bytes: u64) -> usize {
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let worthwhile = bytes / BYTES_WORTH_A_THREAD;
    usize::try_from(worthwhile).map_or(processors, |worthwhile| worthwhile.clamp(1, processors))
}

/// Runs `work` on this thread and on others, and collects the results.
fn on_threads<T: Send>(threads: usize, work: impl Fn() -> Vec<T> + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(&work)).collect();
        let mut all = work();
        for other in others {
            match other.join() {
                Ok(part) => all.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    })
}
