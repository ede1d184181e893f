//! A large image is sent in portions, each an image of its own without a name: while the engine unpacks one, it receives
//! the next. With the image as a whole it does the one after the other, and has all of it on its disk twice.

use std::io;
use std::sync::{Mutex, PoisonError};

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesOrdered;
use tokio::sync::oneshot;

use super::arrange::{Arrangement, LeaveOut};
use super::catalogue::Layer;
use crate::engine::{Digest, Engine, EngineError, EngineImage, ProgressSink, TarStream, TransferProgress};
use crate::image::labels;

/// How many there are at most: more save little more.
const MOST: u64 = 4;
/// What is worth a portion.
const WORTHWHILE: u64 = 16_000_000;

/// The lower layers of an image; the last portion has them all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Portion {
    /// Its layers, lowest first.
    pub(super) order: Vec<usize>,
    /// Those that no portion before it brings and the engine lacks.
    pub(super) send: Vec<usize>,
}

impl Portion {
    /// The image in one.
    pub(super) fn whole(arrangement: &Arrangement) -> Self {
        Self {
            order: arrangement.order.clone(),
            send: arrangement.send.clone(),
        }
    }
}

/// Cuts what is sent of an image into portions. There is one where more save nothing, or would have the source read over
/// and over.
pub(super) fn cut(arrangement: &Arrangement, layers: &[Layer]) -> Vec<Portion> {
    let order = &arrangement.order;
    let is_sent = |at: &usize| arrangement.send.contains(at);
    let total: u64 = arrangement.send.iter().map(|at| layers[*at].size).sum();
    let can_be_cut = arrangement.leave_out != LeaveOut::Nothing
        && arrangement.send.iter().all(|at| layers[*at].place.is_at_hand());
    let most = if can_be_cut {
        (total / WORTHWHILE).clamp(1, MOST)
    } else {
        1
    };

    let (mut ends, mut bytes) = (Vec::new(), 0);
    for (position, at) in order.iter().enumerate().filter(|(_, at)| is_sent(at)) {
        bytes += layers[*at].size;
        if most > 1 && bytes >= total.div_ceil(most) {
            ends.push(position + 1);
            bytes = 0;
        }
    }
    // What is left is the image itself, which sends something.
    ends.pop_if(|end| !order[*end..].iter().any(is_sent));
    ends.push(order.len());

    let begins = [0].into_iter().chain(ends.clone());
    let portions = begins.zip(&ends).map(|(begin, end)| Portion {
        order: order[..*end].to_vec(),
        send: order[begin..*end].iter().copied().filter(is_sent).collect(),
    });
    portions.collect()
}

/// Sends portions, each written when it is its turn. When one fails, those before it are waited for, as the engine may be
/// about to have them, and those after it are given up: their end was never sent.
pub(super) async fn send(
    engine: &Engine,
    subject: &str,
    portions: Vec<impl FnOnce(Turn) -> TarStream>,
    progress: &mut dyn ProgressSink,
) -> Result<(), EngineError> {
    let progress = Mutex::new(progress);
    let last = portions.len().saturating_sub(1);
    let mut before = (over(), over());
    let loads = portions.into_iter().enumerate().map(|(number, portion)| {
        let ((sent, may_begin), (loaded, may_end)) = (oneshot::channel(), oneshot::channel());
        let (begin, end) = std::mem::replace(&mut before, (may_begin, may_end));
        let tar = portion(Turn { begin, sent, end });
        let mut progress = Shared {
            sink: &progress,
            is_last: number == last,
        };
        async move {
            engine.load(subject, tar, &mut progress).await?;
            // Nobody waits for the last one.
            let _ = loaded.send(());
            Ok(())
        }
    });
    loads.collect::<FuturesOrdered<_>>().try_collect().await
}

/// The portions that loads left behind which were killed. Those of a load that still goes on are among them: without
/// them it sends the whole image.
pub async fn unfinished(engine: &Engine) -> Result<Vec<EngineImage>, EngineError> {
    let mut portions = engine.images(Some(labels::PORTION_OF)).await?;
    portions.retain(|image| whole_of(image).is_some());
    Ok(portions)
}

/// The id of the image that this one is a portion of. What somebody named is theirs.
fn whole_of(image: &EngineImage) -> Option<&str> {
    let whole = image.labels.get(labels::PORTION_OF)?;
    image.repo_tags.is_empty().then_some(whole)
}

/// Removes the portions among these images of the one that is there now: a load that was killed left them. What somebody
/// made of one has its label, and layers of its own.
pub(super) async fn remove_left(engine: &Engine, images: &[EngineImage], whole: &Digest, layers: &[Digest]) {
    let is_left = |image: &&EngineImage| {
        whole_of(image) == Some(whole.to_string().as_str()) && layers.starts_with(&image.diff_ids)
    };
    for image in images.iter().filter(is_left) {
        if let Err(error) = engine.remove_unused(&image.id.to_string()).await {
            tracing::warn!(%error, "a part of an image could not be removed");
        }
    }
}

/// Removes portions. The engine keeps what other images have of their layers.
pub(super) async fn remove(engine: &Engine, portions: impl IntoIterator<Item = &Digest>) {
    let removals = portions.into_iter().map(|id| async move {
        if let Err(error) = engine.remove_image(&id.to_string()).await {
            tracing::warn!(%error, "a part of an image could not be removed");
        }
    });
    join_all(removals).await;
}

/// When a portion is sent: after the one before it was, and not to its end before the engine has that one.
#[derive(Debug)]
pub(super) struct Turn {
    begin: oneshot::Receiver<()>,
    sent: oneshot::Sender<()>,
    end: oneshot::Receiver<()>,
}

impl Turn {
    /// The turn of a portion that has none before it.
    pub(super) fn alone() -> Self {
        Self {
            begin: over(),
            sent: oneshot::channel().0,
            end: over(),
        }
    }

    /// Waits for its turn, sends all but the end, and waits until the end can be sent. Blocks.
    pub(super) fn take(self, send: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // Whoever is waited for tells what went wrong; here it only means that nobody reads any more.
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.begin.blocking_recv().map_err(gone)?;
        send()?;
        let _ = self.sent.send(());
        self.end.blocking_recv().map_err(gone)
    }
}

/// What need not be waited for.
fn over() -> oneshot::Receiver<()> {
    let (over, receiver) = oneshot::channel();
    let _ = over.send(());
    receiver
}

/// A sink for the reports of several loads.
struct Shared<'a, 'b> {
    sink: &'a Mutex<&'b mut dyn ProgressSink>,
    is_last: bool,
}

impl ProgressSink for Shared<'_, '_> {
    fn progress(&mut self, progress: TransferProgress) {
        // The engine tells the id of each image, of which only the last is of use to anybody.
        if progress.layer.is_none() && !self.is_last {
            return;
        }
        self.sink
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .progress(progress);
    }

    fn wants_amounts(&self) -> bool {
        self.sink
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wants_amounts()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;

    use super::*;
    use crate::image::load::catalogue::{Encoding, Place, Slice};

    const MB: u64 = 1_000_000;

    fn layer(size: u64) -> Layer {
        let digest = Digest::sha256(&size.to_be_bytes());
        let file = Arc::new(tempfile::tempfile().unwrap());
        Layer {
            diff_id: digest.clone(),
            blob: digest,
            size,
            encoding: Encoding::Plain,
            place: Place::File(Slice::of(&file, 0)),
        }
    }

    fn arrangement(layers: usize, sent: &[usize], leave_out: LeaveOut) -> Arrangement {
        Arrangement {
            order: (0..layers).collect(),
            send: sent.to_vec(),
            leave_out,
        }
    }

    #[rstest]
    #[case::nothing(&[], &[0])]
    #[case::small(&[10, 10, 10], &[3])]
    #[case::just_worthwhile(&[16, 15, 1], &[1, 3])]
    #[case::even(&[50; 8], &[2, 4, 6, 8])]
    #[case::one_is_most_of_it(&[1, 500, 1, 1], &[2, 4])]
    #[case::only_one(&[500], &[1])]
    #[case::the_last_is_most_of_it(&[1, 1, 500], &[3])]
    fn portions_bring_about_as_much_each(#[case] megabytes: &[u64], #[case] ends: &[usize]) {
        let layers: Vec<Layer> = megabytes.iter().map(|size| layer(size * MB)).collect();
        let all: Vec<usize> = (0..layers.len()).collect();
        let portions = cut(&arrangement(layers.len(), &all, LeaveOut::Prefix), &layers);
        let begins = [0].iter().chain(ends);
        let expected: Vec<Portion> = begins
            .zip(ends)
            .map(|(begin, end)| Portion {
                order: all[..*end].to_vec(),
                send: all[*begin..*end].to_vec(),
            })
            .collect();
        assert_eq!(portions, expected);
    }

    #[test]
    fn what_the_engine_has_is_in_no_portion_and_below_all() {
        let layers: Vec<Layer> = [100, 100, 40, 40].map(|size| layer(size * MB)).into();
        let portions = cut(&arrangement(4, &[2, 3], LeaveOut::Prefix), &layers);
        let expected = [(vec![0, 1, 2], vec![2]), (vec![0, 1, 2, 3], vec![3])];
        assert_eq!(portions, expected.map(|(order, send)| Portion { order, send }));
    }

    #[test]
    fn there_is_no_portion_for_what_the_engine_has_at_the_top() {
        let layers: Vec<Layer> = [50, 50, 50, 50, 10].map(|size| layer(size * MB)).into();
        let portions = cut(&arrangement(5, &[0, 1, 2, 3], LeaveOut::Any), &layers);
        assert_eq!(portions.len(), 4);
        let last = Portion {
            order: vec![0, 1, 2, 3, 4],
            send: vec![3],
        };
        assert_eq!(portions.last(), Some(&last));
    }

    #[test]
    fn an_engine_that_takes_whole_images_only_gets_one() {
        let layers: Vec<Layer> = [50; 8].map(|size| layer(size * MB)).into();
        let all: Vec<usize> = (0..8).collect();
        assert_eq!(cut(&arrangement(8, &all, LeaveOut::Nothing), &layers).len(), 1);
    }

    #[test]
    fn what_would_have_to_be_unpacked_again_for_each_is_not_cut() {
        let mut layers: Vec<Layer> = [50; 8].map(|size| layer(size * MB)).into();
        let all: Vec<usize> = (0..8).collect();
        layers[5].place = Place::Member {
            name: "a".to_owned(),
            spooled: None,
        };
        assert_eq!(cut(&arrangement(8, &all, LeaveOut::Prefix), &layers).len(), 1);
    }
}
