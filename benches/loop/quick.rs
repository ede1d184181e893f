//! Fewer and shorter measurements, for `benches/run --quick`.

/// The fewest repetitions of a quick measurement.
const FEWEST: usize = 3;

/// Whether `RALPH_BENCH_QUICK` is 1.
#[expect(clippy::disallowed_methods, reason = "benches/run sets it")]
pub(crate) fn is_quick() -> bool {
    std::env::var_os("RALPH_BENCH_QUICK").is_some_and(|value| value == "1")
}

/// How often to measure what is measured so often usually: a tenth of it when quick, but at least three times.
pub(crate) fn rounds(usual: usize) -> usize {
    pick(usual, (usual / 10).max(FEWEST).min(usual))
}

/// The usual value, or the one for a quick measurement.
pub(crate) fn pick<T>(usual: T, quick: T) -> T {
    if is_quick() { quick } else { usual }
}
