//! Requests that Schemathesis makes from the OpenAPI document: none may end in an error of the service, and every answer is
//! one that the document describes.

use std::process::Command;

use crate::need;
use crate::service::{Service, done};
use crate::support::ralph::finish;

#[test]
fn requests_made_from_the_document_get_the_answers_that_it_describes() {
    let program = need!(
        std::env::var("RALPH_TEST_SCHEMATHESIS")
            .map_err(|_| "Schemathesis is missing: tests/support/install-schemathesis installs it")
    );
    let service = Service::start(done());
    let run = service.place.run_id();
    let url = format!("http://{}/api/openapi.json", service.address);
    let config = service.place.path().join("schemathesis.toml");
    // Without a run that exists, most requests would end with 404.
    std::fs::write(&config, format!("[parameters]\n\"path.run\" = \"{run}\"\n")).unwrap();
    let mut command = Command::new(program);
    command
        .current_dir(service.place.path())
        .args(["--config-file", config.to_str().unwrap(), "run", &url, "--url"])
        .arg(format!("http://{}", service.address))
        .args(["-H", &format!("Authorization: Bearer {}", service.token)])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance",
        ])
        .args([
            "--checks",
            "response_schema_conformance,response_headers_conformance",
        ])
        .args([
            "--phases",
            "examples,coverage,fuzzing",
            "--max-examples",
            "20",
            "--seed",
            "1",
        ])
        .args([
            "--exclude-operation-id",
            "removeRun",
            "--exclude-operation-id",
            "events",
        ])
        // It would ask services on the internet.
        .args(["--exclude-operation-id", "checkCredential"])
        .args(["--suppress-health-check", "all", "--no-color"]);
    let ended = finish(&mut command);
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
}
