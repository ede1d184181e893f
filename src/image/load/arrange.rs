//! Decides in which order an image's layers are stacked and which of them are sent.

use std::collections::BTreeSet;

use super::contents::{ImageLayer, LayerEncoding};
use crate::digest::Digest;
use crate::engine::{EngineInfo, EngineKind, ImageStore};

/// Whether an image's layers may be reordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerOrder {
    /// No: a later layer may change files of an earlier one.
    Fixed,
    /// All but the last: no two of them contain the same file, as in images that Nix makes from store paths.
    Free,
}

/// Which layers may be omitted from an image that an engine has parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OmittableLayers {
    /// The lowest layers, if one of its images begins with the same ones.
    Prefix,
    /// Any layer that it has.
    Any,
    /// None: it accepts only complete images.
    Nothing,
}

impl OmittableLayers {
    /// What this engine supports.
    #[must_use]
    pub fn for_engine(engine: &EngineInfo) -> Self {
        match (engine.kind, engine.store) {
            (EngineKind::Podman, _) => Self::Nothing,
            (EngineKind::Docker, ImageStore::GraphDriver) => Self::Prefix,
            (EngineKind::Docker, ImageStore::Containerd) => Self::Any,
        }
    }
}

/// An order of layers, and which of them are sent. Layers are indexes into [`ImageContents`](super::ImageContents).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerArrangement {
    /// All layers, lowest first.
    pub order: Vec<usize>,
    /// The layers that the engine lacks.
    pub send: Vec<usize>,
    /// What the engine allows to omit.
    pub omittable: OmittableLayers,
}

impl LayerArrangement {
    /// The same order with all layers sent.
    #[must_use]
    pub fn complete(&self) -> Self {
        Self {
            send: self.order.clone(),
            ..self.clone()
        }
    }

    /// Whether all layers are sent.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.send.len() == self.order.len()
    }
}

/// Finds the order that sends the fewest bytes. `present` are the layers of each image that the engine has. The image
/// starts with the layers that it shares with one of them, then the largest, so that later changes of small layers do not
/// affect them. The last layer stays last.
#[must_use]
pub fn arrange(
    layers: &[ImageLayer],
    order: LayerOrder,
    present: &[Vec<Digest>],
    omittable: OmittableLayers,
) -> LayerArrangement {
    let shared = present.iter().map(|image| shared_layers(layers, order, image));
    let bytes = |shared: &Vec<usize>| shared.iter().map(|at| layers[*at].size).sum::<u64>();
    let shared = shared
        .max_by_key(|shared| (bytes(shared), shared.len()))
        .unwrap_or_default();
    let order = complete_order(layers, order, &shared);
    let has: BTreeSet<&Digest> = present.iter().flatten().collect();
    let is_sent = |position: usize, layer: &ImageLayer| match omittable {
        OmittableLayers::Nothing => true,
        OmittableLayers::Prefix => position >= shared.len(),
        // The engine knows a compressed layer by another digest, if at all.
        OmittableLayers::Any => layer.encoding != LayerEncoding::Plain || !has.contains(&layer.diff_id),
    };
    let send = order
        .iter()
        .enumerate()
        .filter(|(position, at)| is_sent(*position, &layers[**at]));
    LayerArrangement {
        send: send.map(|(_, at)| *at).collect(),
        order,
        omittable,
    }
}

/// The lowest layers of `image` that this image can begin with too.
fn shared_layers(layers: &[ImageLayer], order: LayerOrder, image: &[Digest]) -> Vec<usize> {
    let mut taken = Vec::new();
    for diff_id in image {
        let last_is_next = taken.len() + 1 == layers.len();
        let next = match order {
            LayerOrder::Fixed => Some(taken.len()),
            LayerOrder::Free if last_is_next => Some(taken.len()),
            LayerOrder::Free => {
                movable(layers).find(|at| layers[*at].diff_id == *diff_id && !taken.contains(at))
            }
        };
        match next {
            Some(at) if layers.get(at).is_some_and(|layer| layer.diff_id == *diff_id) => taken.push(at),
            _ => break,
        }
    }
    taken
}

/// The full order, beginning with these layers.
fn complete_order(layers: &[ImageLayer], order: LayerOrder, beginning: &[usize]) -> Vec<usize> {
    match order {
        LayerOrder::Fixed => (0..layers.len()).collect(),
        LayerOrder::Free => {
            let mut rest: Vec<usize> = movable(layers).filter(|at| !beginning.contains(at)).collect();
            rest.sort_by_key(|at| std::cmp::Reverse(layers[*at].size));
            let last = layers.len().checked_sub(1).filter(|at| !beginning.contains(at));
            beginning.iter().copied().chain(rest).chain(last).collect()
        }
    }
}

/// All layers but the last.
fn movable(layers: &[ImageLayer]) -> std::ops::Range<usize> {
    0..layers.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::image::load::contents::LayerLocation;

    fn digest(name: char) -> Digest {
        Digest::sha256(name.to_string().as_bytes())
    }

    /// Layers named by letters, with their sizes: `a1 b22`.
    fn layers(text: &str) -> Vec<ImageLayer> {
        let layer = |word: &str| {
            let name = word.chars().next().unwrap();
            ImageLayer {
                diff_id: digest(name),
                blob: digest(name),
                size: word[1..].parse().unwrap(),
                encoding: LayerEncoding::Plain,
                location: LayerLocation::Member(name.to_string()),
            }
        };
        text.split(' ').map(layer).collect()
    }

    fn images(rows: &[&str]) -> Vec<Vec<Digest>> {
        rows.iter().map(|row| row.chars().map(digest).collect()).collect()
    }

    fn names(layers: &[ImageLayer], at: &[usize]) -> String {
        let name = |at: &usize| match &layers[*at].location {
            LayerLocation::Member(name) => name.as_str(),
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
        let found = arrange(
            &layers,
            LayerOrder::Free,
            &images(present),
            OmittableLayers::Prefix,
        );
        assert_eq!(
            (
                names(&layers, &found.order).as_str(),
                names(&layers, &found.send).as_str()
            ),
            (order, sent)
        );
    }

    #[rstest]
    #[case::nothing_there(&[], OmittableLayers::Prefix, "abcz")]
    #[case::a_common_beginning(&["abx"], OmittableLayers::Prefix, "cz")]
    #[case::the_same_layers_elsewhere(&["xabcz"], OmittableLayers::Prefix, "abcz")]
    #[case::any_layer(&["xcb"], OmittableLayers::Any, "az")]
    #[case::whole_images_only(&["abcz"], OmittableLayers::Nothing, "abcz")]
    fn fixed_layers_stay_where_they_are(
        #[case] present: &[&str],
        #[case] omittable: OmittableLayers,
        #[case] sent: &str,
    ) {
        let layers = layers("a10 b20 c40 z5");
        let found = arrange(&layers, LayerOrder::Fixed, &images(present), omittable);
        assert_eq!(names(&layers, &found.order), "abcz");
        assert_eq!(names(&layers, &found.send), sent);
    }

    #[test]
    fn a_layer_that_occurs_twice_keeps_both_places() {
        let layers = layers("a1 a1 b2 z1");
        let found = arrange(
            &layers,
            LayerOrder::Free,
            &images(&["aab"]),
            OmittableLayers::Prefix,
        );
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
            let found = arrange(&layers, LayerOrder::Free, &images(&rows), OmittableLayers::Prefix);

            let mut sorted = found.order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..layers.len()).collect::<Vec<_>>());
            prop_assert_eq!(found.order.last(), Some(&(layers.len() - 1)));
            let left_out = names(&layers, &found.order[..found.order.len() - found.send.len()]);
            prop_assert!(left_out.is_empty() || rows.iter().any(|row| row.starts_with(&left_out)));
        }
    }
}
