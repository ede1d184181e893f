//! Decides in which order an image's layers stand and which of them are sent.

use std::collections::BTreeSet;

use super::catalogue::{Encoding, Layer};
use crate::engine::{Digest, EngineInfo, EngineKind, ImageStore};

/// Whether an image's layers may change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerOrder {
    /// They stay where they are: a later one may change what an earlier one brought.
    Fixed,
    /// All but the last may: no two of them hold the same file, as in images that Nix makes of store paths.
    Free,
}

/// What an engine lets us leave out of an image that it has parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveOut {
    /// The layers an image of its begins with.
    Prefix,
    /// Any layer it has.
    Any,
    /// Nothing: it takes whole images only.
    Nothing,
}

impl LeaveOut {
    /// What this engine allows.
    #[must_use]
    pub fn by(engine: &EngineInfo) -> Self {
        match (engine.kind, engine.store) {
            (EngineKind::Podman, _) => Self::Nothing,
            (EngineKind::Docker, ImageStore::GraphDriver) => Self::Prefix,
            (EngineKind::Docker, ImageStore::Containerd) => Self::Any,
        }
    }
}

/// An order of layers, and which of them are sent. Numbers are positions in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrangement {
    /// All layers, lowest first.
    pub order: Vec<usize>,
    /// Those the engine lacks.
    pub send: Vec<usize>,
    /// What the engine allowed to leave out.
    pub leave_out: LeaveOut,
}

impl Arrangement {
    /// The same order, with everything sent.
    #[must_use]
    pub fn complete(&self) -> Self {
        Self {
            send: self.order.clone(),
            ..self.clone()
        }
    }

    /// Whether everything is sent.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.send.len() == self.order.len()
    }
}

/// Finds the order that saves most, given the layers of the images the engine has: first the longest row of layers that
/// one of them begins with, then the largest, so that small changes leave them alone, and the last layer last.
#[must_use]
pub fn arrange(
    layers: &[Layer],
    order: LayerOrder,
    present: &[Vec<Digest>],
    leave_out: LeaveOut,
) -> Arrangement {
    let shared = present.iter().map(|image| shared_beginning(layers, order, image));
    let bytes = |shared: &Vec<usize>| shared.iter().map(|at| layers[*at].size).sum::<u64>();
    let shared = shared
        .max_by_key(|shared| (bytes(shared), shared.len()))
        .unwrap_or_default();
    let order = completed(layers, order, &shared);
    let has: BTreeSet<&Digest> = present.iter().flatten().collect();
    let is_sent = |position: usize, layer: &Layer| match leave_out {
        LeaveOut::Nothing => true,
        LeaveOut::Prefix => position >= shared.len(),
        // A packed layer is known there by another digest than the one at hand, if at all.
        LeaveOut::Any => layer.encoding != Encoding::Plain || !has.contains(&layer.diff_id),
    };
    let send = order
        .iter()
        .enumerate()
        .filter(|(position, at)| is_sent(*position, &layers[**at]));
    Arrangement {
        send: send.map(|(_, at)| *at).collect(),
        order,
        leave_out,
    }
}

/// The layers that `image` begins with and that this image can begin with too.
fn shared_beginning(layers: &[Layer], order: LayerOrder, image: &[Digest]) -> Vec<usize> {
    let mut taken = Vec::new();
    for diff_id in image {
        let last_is_next = taken.len() + 1 == layers.len();
        let next = match order {
            LayerOrder::Fixed => Some(taken.len()),
            LayerOrder::Free if last_is_next => Some(taken.len()),
            LayerOrder::Free => {
                free(layers).find(|at| layers[*at].diff_id == *diff_id && !taken.contains(at))
            }
        };
        match next {
            Some(at) if layers.get(at).is_some_and(|layer| layer.diff_id == *diff_id) => taken.push(at),
            _ => break,
        }
    }
    taken
}

/// The order that begins with these layers.
fn completed(layers: &[Layer], order: LayerOrder, beginning: &[usize]) -> Vec<usize> {
    match order {
        LayerOrder::Fixed => (0..layers.len()).collect(),
        LayerOrder::Free => {
            let mut rest: Vec<usize> = free(layers).filter(|at| !beginning.contains(at)).collect();
            rest.sort_by_key(|at| std::cmp::Reverse(layers[*at].size));
            let last = layers.len().checked_sub(1).filter(|at| !beginning.contains(at));
            beginning.iter().copied().chain(rest).chain(last).collect()
        }
    }
}

/// All layers but the last.
fn free(layers: &[Layer]) -> std::ops::Range<usize> {
    0..layers.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::image::load::catalogue::Place;

    fn digest(name: char) -> Digest {
        Digest::sha256(name.to_string().as_bytes())
    }

    /// Layers named by letters, with their sizes: `a1 b22`.
    fn layers(text: &str) -> Vec<Layer> {
        let layer = |word: &str| {
            let name = word.chars().next().unwrap();
            Layer {
                diff_id: digest(name),
                blob: digest(name),
                size: word[1..].parse().unwrap(),
                encoding: Encoding::Plain,
                place: Place::Member {
                    name: name.to_string(),
                    spooled: None,
                },
            }
        };
        text.split(' ').map(layer).collect()
    }

    fn images(rows: &[&str]) -> Vec<Vec<Digest>> {
        rows.iter().map(|row| row.chars().map(digest).collect()).collect()
    }

    fn names(layers: &[Layer], at: &[usize]) -> String {
        let name = |at: &usize| match &layers[*at].place {
            Place::Member { name, .. } => name.as_str(),
            other => panic!("{other:?}"),
        };
        at.iter().map(name).collect()
    }

    #[rstest]
    #[case::first_load_is_largest_first(&[], "cbaz", "cbaz")]
    #[case::the_same_image(&["cbaz"], "cbaz", "")]
    #[case::only_the_last_changed(&["cbay"], "cbaz", "z")]
    #[case::one_in_the_middle_changed(&["cxay"], "cbaz", "baz")]
    #[case::another_order_is_kept(&["abcz"], "abcz", "")]
    #[case::the_heavier_beginning_wins(&["abx", "cx"], "cbaz", "baz")]
    #[case::the_last_one_is_never_moved_forward(&["zcba"], "cbaz", "cbaz")]
    #[case::a_foreign_image(&["xyz"], "cbaz", "cbaz")]
    #[case::an_image_that_goes_on(&["cbazq"], "cbaz", "")]
    fn free_layers_follow_what_the_engine_has(
        #[case] present: &[&str],
        #[case] order: &str,
        #[case] sent: &str,
    ) {
        let layers = layers("a10 b20 c40 z5");
        let found = arrange(&layers, LayerOrder::Free, &images(present), LeaveOut::Prefix);
        assert_eq!(
            (
                names(&layers, &found.order).as_str(),
                names(&layers, &found.send).as_str()
            ),
            (order, sent)
        );
    }

    #[rstest]
    #[case::nothing_there(&[], LeaveOut::Prefix, "abcz")]
    #[case::a_common_beginning(&["abx"], LeaveOut::Prefix, "cz")]
    #[case::the_same_layers_elsewhere(&["xabcz"], LeaveOut::Prefix, "abcz")]
    #[case::any_layer(&["xcb"], LeaveOut::Any, "az")]
    #[case::whole_images_only(&["abcz"], LeaveOut::Nothing, "abcz")]
    fn fixed_layers_stay_where_they_are(
        #[case] present: &[&str],
        #[case] leave_out: LeaveOut,
        #[case] sent: &str,
    ) {
        let layers = layers("a10 b20 c40 z5");
        let found = arrange(&layers, LayerOrder::Fixed, &images(present), leave_out);
        assert_eq!(names(&layers, &found.order), "abcz");
        assert_eq!(names(&layers, &found.send), sent);
    }

    #[test]
    fn a_layer_that_occurs_twice_keeps_both_places() {
        let layers = layers("a1 a1 b2 z1");
        let found = arrange(&layers, LayerOrder::Free, &images(&["aab"]), LeaveOut::Prefix);
        assert_eq!((found.order, found.send), (vec![0, 1, 2, 3], vec![3]));
    }

    proptest! {
        #[test]
        fn every_layer_stands_once_and_what_is_left_out_is_a_beginning_the_engine_has(
            sizes in prop::collection::vec(0u64..100, 1..9),
            rows in prop::collection::vec("[a-k]{0,10}", 0..5),
        ) {
            let text: Vec<String> = ('a'..).zip(&sizes).map(|(name, size)| format!("{name}{size}")).collect();
            let layers = layers(&text.join(" "));
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            let found = arrange(&layers, LayerOrder::Free, &images(&rows), LeaveOut::Prefix);

            let mut sorted = found.order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..layers.len()).collect::<Vec<_>>());
            prop_assert_eq!(found.order.last(), Some(&(layers.len() - 1)));
            let left_out = names(&layers, &found.order[..found.order.len() - found.send.len()]);
            prop_assert!(left_out.is_empty() || rows.iter().any(|row| row.starts_with(&left_out)));
        }
    }
}
