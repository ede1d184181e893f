use rstest::rstest;

use super::*;

const LISTS: [&str; 4] = [
    include_str!("chat.txt"),
    include_str!("generate_content.txt"),
    include_str!("messages.txt"),
    include_str!("responses.txt"),
];

fn checked(list: &'static str, body: &str) -> Result<CallTraits, String> {
    let rules = CallRules {
        fields: &["allowed.field".to_owned()],
        allows_address: &|address| address.starts_with("https://allowed.example/"),
    };
    check(&FieldList::parse(list), rules, body.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn lists_name_every_field_once_and_only_known_paths() {
    for list in LISTS {
        let fields = FieldList::parse(list);
        let lines = list
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(fields.0.len(), lines.count());
        for (path, rule) in &fields.0 {
            let parent = path
                .rsplit_once('.')
                .map(|(parent, _)| parent.trim_end_matches("[]"));
            assert!(
                parent.is_none_or(|parent| fields.0.contains_key(parent)),
                "{path}"
            );
            if let FieldRule::SameAs(other) = rule {
                let field = other.trim_end_matches("[]");
                assert!(other.is_empty() || fields.0.contains_key(field), "{path}");
            }
        }
    }
}

const LIST: &str = "\
model
tier            auto fast=250
tools
tools[].type    own web_*=alone
tools[].tools   = tools
tools[].schema  **
image           @url
image.url       @url
items
items[].id      +kind
items[].kind    message
allowed
";

const UNBOUNDED: CallTraits = CallTraits {
    is_unbounded: true,
    ..PLAIN
};

const PLAIN: CallTraits = CallTraits {
    is_unbounded: false,
    price_percent: 100,
};

#[rstest]
#[case::plain(r#"{"model":"m","tier":null}"#, PLAIN)]
#[case::free(r#"{"tools":[{"type":"own","schema":{"a":[{"api_base":"x"}]}}]}"#, PLAIN)]
#[case::nested(r#"{"tools":[{"tools":[{"tools":[{"type":"own"}]}]}]}"#, PLAIN)]
#[case::inline(r#"{"image":{"url":"data:image/png;base64,AA"}}"#, UNBOUNDED)]
#[case::allowed_host(r#"{"image":{"url":"https://allowed.example/a.png"}}"#, UNBOUNDED)]
#[case::beside_another(r#"{"items":[{"id":"i","kind":"message"}]}"#, PLAIN)]
#[case::allowed_field(r#"{"allowed":{"field":{"a":1}}}"#, PLAIN)]
#[case::dearer(r#"{"tier":"fast"}"#, CallTraits { price_percent: 250, ..PLAIN })]
#[case::unbounded(r#"{"tools":[{"tools":[{"type":"web_search"}]}]}"#, UNBOUNDED)]
fn a_listed_call_passes(#[case] body: &str, #[case] expected: CallTraits) {
    assert_eq!(checked(LIST, body), Ok(expected));
}

#[rstest]
#[case::unknown(r#"{"api_base":"x"}"#, "the field `api_base` is not one")]
#[case::spelled_otherwise(r#"{"api\u005fbase":"x"}"#, "the field `api_base` is not one")]
#[case::deep(
    r#"{"tools":[{"server_url":"x"}]}"#,
    "the field `tools[].server_url` is not one"
)]
#[case::deeper(
    r#"{"tools":[{"tools":[{"server_url":"x"}]}]}"#,
    "the field `tools[].server_url` is not one"
)]
#[case::in_lists(r#"{"tools":[[{"type":"own"}]]}"#, "the field `tools[][].type` is not one")]
#[case::not_an_object(
    r#"{"image":"http://a.example/"}"#,
    "the field `image` makes the service load `http://a.example/`"
)]
#[case::several(
    r#"{"image":["data:,","http://a.example/"]}"#,
    "makes the service load `http://a.example/`"
)]
#[case::address(
    r#"{"image":{"url":"http://a.example/"}}"#,
    "the field `image.url` makes the service load"
)]
#[case::no_address(
    r#"{"image":{"url":"file-123"}}"#,
    "the field `image.url` makes the service load"
)]
#[case::alone(
    r#"{"items":[{"kind":"message"},{"id":"i"}]}"#,
    "the field `items[].id` is not one"
)]
#[case::value(r#"{"tools":[{"type":"mcp"}]}"#, "the field `tools[].type` must not be `mcp`")]
#[case::values(r#"{"tools":[{"type":["own","mcp"]}]}"#, "must not be `mcp`")]
#[case::twice(r#"{"model":"m","model":"n"}"#, "the field `model` is ambiguous")]
#[case::twice_spelled_otherwise(r#"{"model":"m","mod\u0065l":"n"}"#, "the field `model` is ambiguous")]
#[case::twice_deep(
    r#"{"tools":[{"type":"own","type":"own"}]}"#,
    "the field `tools[].type` is ambiguous"
)]
#[case::like_a_path(r#"{"image.url":"http://a.example/"}"#, "the field `image.url` is ambiguous")]
#[case::like_an_allowed_path(r#"{"allowed.field":1}"#, "the field `allowed.field` is ambiguous")]
fn any_other_call_is_refused_by_name(#[case] body: &str, #[case] expected: &str) {
    let error = checked(LIST, body).unwrap_err();
    assert!(error.contains(expected), "{error}");
}
