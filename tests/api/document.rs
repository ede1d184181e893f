//! The OpenAPI document.

use std::path::Path;

use crate::service::{Service, done};

#[test]
fn the_document_is_served_and_kept_in_the_reference() {
    let document = ralph::api::openapi();
    let text = format!("{document:#}\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/openapi.json");
    if std::env::var_os("RALPH_UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/reference/openapi.json differs: run this test with RALPH_UPDATE_REFERENCE=1"
    );
    let service = Service::start(done());
    assert_eq!(service.get("/api/openapi.json"), document);
}

#[test]
fn every_operation_has_a_name_of_its_own_and_a_problem() {
    let document = ralph::api::openapi();
    let mut ids = std::collections::BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{method} {path}"
            );
            assert!(operation["responses"]["default"].is_object(), "{method} {path}");
        }
    }
    assert!(ids.len() > 25, "{ids:?}");
}

#[test]
fn a_problem_links_to_its_section_of_the_documentation() {
    let service = Service::start(done());
    let link_of = |path: &str| {
        let problem = service.ask("GET", path, None).expect_problem(404, "");
        problem["type"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        link_of("/api/runs/rzzzzzzz"),
        ralph::assembly::ErrorTopic::Run.url()
    );
    assert_eq!(
        link_of("/api/nowhere"),
        ralph::assembly::ErrorTopic::Service.url()
    );
}
