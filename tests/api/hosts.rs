//! Models and credentials of the host.

use serde_json::{Value, json};

use crate::service::{Service, create_token};
use crate::support::ralph::Place;

fn is_stored(service: &Service, name: &str) -> bool {
    let listed = service.get("/api/credentials");
    let rows = listed["credentials"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    row.unwrap_or_else(|| panic!("{listed}"))["stored"] == true
}

#[test]
fn a_credential_is_stored_and_removed_and_never_shown() {
    let service = Service::start(Place::new());
    let listed = service.get("/api/credentials");
    let key = listed["credentials"].as_array().unwrap().iter();
    let name = key
        .map(|row| row["name"].as_str().unwrap())
        .find(|name| name.contains("openai"))
        .unwrap();
    let path = format!("/api/credentials/{name}");
    assert!(!is_stored(&service, name));
    let value = format!("sk-CANARY{}", "a".repeat(40));
    let steer = create_token(&service.place, "steerer", "steer");
    let body = json!({"value": value});
    service
        .ask_as(&steer, "PUT", &path, Some(&body))
        .expect_problem(403, "`admin`");
    service.ask("PUT", &path, Some(&body)).expect(204);
    assert!(is_stored(&service, name));
    assert!(!service.get("/api/credentials").to_string().contains("CANARY"));
    let wrong = service.ask("PUT", &path, Some(&json!({"value": ""})));
    assert!(wrong.status == 422 && is_stored(&service, name), "{wrong:?}");
    service.ask("DELETE", &path, None).expect(204);
    assert!(!is_stored(&service, name));
    service
        .ask("DELETE", "/api/credentials/none", None)
        .expect_problem(404, "no such kind");
}

#[test]
fn models_are_listed_as_on_the_command_line() {
    let service = Service::start(Place::new());
    let printed: Value = serde_json::from_str(&service.place.run(&["models", "--json"]).stdout).unwrap();
    assert_eq!(service.get("/api/models")["models"], printed);
}
