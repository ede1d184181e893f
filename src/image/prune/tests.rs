//! What is pruned, as data: images by tag and age in days, and what becomes of each.

use rstest::rstest;

use super::*;
use crate::digest::Digest;

const KEPT: PruneDecision = PruneDecision::Keep(KeepReason::Newest);
const PLANNED: PruneDecision = PruneDecision::Keep(KeepReason::Planned);
const IN_USE: PruneDecision = PruneDecision::Keep(KeepReason::InUse);
const GONE: PruneDecision = PruneDecision::Remove;

fn now() -> Timestamp {
    "2026-03-01T00:00:00Z".parse().unwrap()
}

fn tag(name: &str) -> ImageTag {
    ImageTag::at_end_of(&format!("agent-loop-sandbox-{name}")).unwrap()
}

fn image(name: &str, days: Option<i64>) -> LocalImage {
    LocalImage {
        id: Digest::sha256(name.as_bytes()),
        tag: tag(name),
        names: vec![tag(name).to_string()],
        other_names: Vec::new(),
        labels: BTreeMap::new(),
        layers: 1,
        size: 1,
        since: days.map(|days| now() - SignedDuration::from_hours(days * 24)),
        pulled_from: None,
        in_use: false,
    }
}

#[rstest]
#[case::newest_of_each_name_stay(1, &[
    ("claude:v00000001", 1, PLANNED), ("claude:v00000002", 2, GONE),
    ("claude-app:v00000001", 1, PLANNED), ("claude-app:v00000002", 9, GONE),
])]
#[case::what_is_planned_stays_though_others_are_newer(1, &[
    ("claude-app:v00000001", 90, PLANNED), ("claude-app:v00000002", 1, KEPT), ("claude-app:v00000003", 2, GONE),
])]
#[case::as_many_as_asked_for(2, &[
    ("claude-app:v00000002", 40, KEPT), ("claude-app:v00000003", 41, KEPT), ("claude-app:v00000004", 42, GONE),
])]
#[case::all_but_what_is_planned(0, &[
    ("claude-app:v00000001", 1, PLANNED), ("claude-app:v00000002", 0, GONE),
])]
#[case::another_projects_newest_stays_whatever_is_asked_for(0, &[
    ("claude-other:v00000008", 3, KEPT), ("claude-other:v00000009", 4, GONE),
])]
#[case::unless_it_is_old(5, &[
    ("claude-other:v00000008", 30, KEPT), ("claude-other:v00000009", 31, GONE),
])]
fn what_is_old_goes(#[case] keep: usize, #[case] expected: &[(&str, i64, PruneDecision)]) {
    let stock: Vec<LocalImage> = expected
        .iter()
        .map(|(name, days, _)| image(name, Some(*days)))
        .collect();
    check(
        &stock,
        keep,
        expected.iter().map(|(name, _, decision)| (*name, *decision)),
    );
}

#[test]
fn what_a_container_needs_stays() {
    let used = LocalImage {
        in_use: true,
        ..image("claude-other:v00000009", Some(400))
    };
    let stock = [used, image("claude-other:v00000008", Some(1))];
    check(
        &stock,
        0,
        [
            ("claude-other:v00000008", KEPT),
            ("claude-other:v00000009", IN_USE),
        ],
    );
}

#[test]
fn an_image_of_unknown_age_is_the_last_to_be_kept_and_never_called_old() {
    let stock = [
        image("claude-other:v00000007", None),
        image("codex-other:v00000007", None),
        image("codex-other:v00000008", Some(20)),
    ];
    check(
        &stock,
        1,
        [
            ("claude-other:v00000007", KEPT),
            ("codex-other:v00000007", GONE),
            ("codex-other:v00000008", KEPT),
        ],
    );
}

fn check<'a>(
    stock: &[LocalImage],
    keep: usize,
    expected: impl IntoIterator<Item = (&'a str, PruneDecision)>,
) {
    let rules = PruneRules {
        planned: vec![tag("claude:v00000001"), tag("claude-app:v00000001")],
        keep,
        now: now(),
    };
    let decisions: Vec<(ImageTag, PruneDecision)> = rules
        .decide(stock)
        .into_iter()
        .map(|(image, decision)| (image.tag.clone(), decision))
        .collect();
    let mut expected: Vec<(ImageTag, PruneDecision)> = expected
        .into_iter()
        .map(|(name, decision)| (tag(name), decision))
        .collect();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(decisions, expected);
}
