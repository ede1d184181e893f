//! Bases and images for another platform than the one that is asked for.

use rstest::rstest;

use super::*;

fn other_platform(found: &str, wanted: Platform) -> StepReason {
    let found = found.to_owned();
    StepReason::OtherPlatform { found, wanted }
}

/// A base for another platform, and what is planned first.
#[rstest]
#[case::required(true, Vec::new(), FRESH, Some(OnFailure::Stop))]
#[case::required_and_there(true, case().built(), FRESH, Some(OnFailure::Stop))]
#[case::required_and_just_tried(true, Vec::new(), PullHistory::JustTried, Some(OnFailure::Stop))]
#[case::may_be_emulated(false, Vec::new(), FRESH, Some(OnFailure::GoOn))]
#[case::may_be_emulated_and_is_there(false, case().built(), FRESH, None)]
#[case::may_be_emulated_and_just_tried(false, Vec::new(), PullHistory::JustTried, None)]
fn a_base_for_another_platform_is_pulled(
    #[case] requires_platform: bool,
    #[case] images: Vec<TaggedImage>,
    #[case] pulls: PullHistory,
    #[case] expected: Option<OnFailure>,
) {
    let found = Some("linux/arm64");
    let plan = Case {
        pulls,
        found,
        requires_platform,
        ..case()
    }
    .plan(images);
    let pull = plan.steps.first().filter(|_| plan.is_provisional());
    assert_eq!(pull.map(|step| step.on_failure), expected, "{plan}");
    let reason = other_platform("linux/arm64", Platform::LinuxAmd64);
    assert!(pull.is_none_or(|step| step.reason == reason), "{plan}");
}

#[rstest]
#[case::required(true)]
#[case::may_be_emulated(false)]
fn an_image_for_another_platform_is_built_again_if_that_is_required(#[case] requires_platform: bool) {
    let wanted = Platform::LinuxArm64;
    let case = Case {
        platform: wanted,
        found: Some("linux/arm64"),
        requires_platform,
        dependencies: None,
        ..case()
    };
    let expected = requires_platform.then(|| ("base", other_platform("linux/amd64", wanted)));
    assert_eq!(steps(&case.plan(case.built())), Vec::from_iter(expected));
}
