//! Labels. Their names are equal without regard to case.

use serde_json::{Value, json};

use super::Call;
use super::issues::record_event;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::{RepoLabel, World};

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    match call.operation.id {
        "issues/list-labels-for-repo" => {
            let keys: Vec<String> = call.repo().labels.keys().cloned().collect();
            call.page(call.labels_json(&keys))
        }
        "issues/get-label" => {
            let key = known(call)?;
            one(call, 200, &key)
        }
        "issues/create-label" => create(call),
        "issues/update-label" => update(call),
        "issues/delete-label" => delete(call),
        "issues/list-labels-on-issue" => call.page(call.labels_json(&call.issue()?.labels)),
        "issues/add-labels" => add(call),
        "issues/set-labels" => {
            let number = call.issue()?.number;
            replace(call, number);
            of_issue(call)
        }
        "issues/remove-label" => remove(call),
        "issues/remove-all-labels" => {
            let number = call.issue()?.number;
            call.body = json!([]);
            replace(call, number);
            Reply::no_content()
        }
        _ => call.not_implemented(),
    }
}

/// The names in the body of a request: a list, or a list below `labels`, of texts or of objects with a name.
pub(super) fn names(body: &Value) -> Vec<String> {
    let list = body.as_array().or_else(|| body["labels"].as_array());
    let name = |item: &Value| item.as_str().or_else(|| item["name"].as_str()).map(str::to_owned);
    list.into_iter().flatten().filter_map(name).collect()
}

/// Adds a label to an issue, and to the repository if it is not there. A label that it has already leaves no event.
pub(in crate::fake_github) fn add_label(
    world: &mut World,
    repo: usize,
    number: u64,
    actor: &str,
    name: &str,
) {
    let key = name.to_lowercase();
    if !world.repos[repo].labels.contains_key(&key) {
        let label = RepoLabel {
            id: world.new_id(),
            name: name.to_owned(),
            color: "ededed".to_owned(),
            description: None,
        };
        world.repos[repo].labels.insert(key.clone(), label);
    }
    let Some(issue) = world.repos[repo].issues.get_mut(&number) else {
        return;
    };
    if issue.labels.contains(&key) {
        return;
    }
    issue.labels.push(key.clone());
    label_event(world, repo, number, actor, "labeled", &key);
}

/// Removes a label from an issue; false when it did not have it.
pub(in crate::fake_github) fn remove_label(
    world: &mut World,
    repo: usize,
    number: u64,
    actor: &str,
    name: &str,
) -> bool {
    let key = name.to_lowercase();
    let Some(issue) = world.repos[repo].issues.get_mut(&number) else {
        return false;
    };
    let Some(place) = issue.labels.iter().position(|label| *label == key) else {
        return false;
    };
    issue.labels.remove(place);
    label_event(world, repo, number, actor, "unlabeled", &key);
    true
}

fn label_event(world: &mut World, repo: usize, number: u64, actor: &str, event: &str, key: &str) {
    let label = world.repos[repo].labels.get(key);
    let details = label.map(|label| json!({ "label": { "name": label.name, "color": label.color } }));
    record_event(world, repo, number, actor, event, details.unwrap_or_default());
}

/// Sets exactly the labels of the body.
pub(super) fn replace(call: &mut Call<'_>, number: u64) {
    let wanted = names(&call.body);
    let actor = call.caller.login().to_owned();
    let had = call.repo().issues.get(&number).map(|issue| issue.labels.clone());
    for key in had.unwrap_or_default() {
        if wanted.iter().all(|name| name.to_lowercase() != key) {
            remove_label(call.world, call.repo, number, &actor, &key);
        }
    }
    for name in wanted {
        add_label(call.world, call.repo, number, &actor, &name);
    }
}

fn add(call: &mut Call<'_>) -> Handled {
    let number = call.issue()?.number;
    let names = names(&call.body);
    if names.is_empty() {
        return Err(Reply::refuse(422, "Invalid request.\n\nNo labels were supplied."));
    }
    let actor = call.caller.login().to_owned();
    for name in names {
        add_label(call.world, call.repo, number, &actor, &name);
    }
    of_issue(call)
}

fn remove(call: &mut Call<'_>) -> Handled {
    let number = call.issue()?.number;
    let (actor, name) = (
        call.caller.login().to_owned(),
        call.operation.parameter("name").to_owned(),
    );
    if !remove_label(call.world, call.repo, number, &actor, &name) {
        return Err(Reply::refuse(404, "Label does not exist"));
    }
    of_issue(call)
}

fn of_issue(call: &Call<'_>) -> Handled {
    let labels = call.labels_json(&call.issue()?.labels);
    Reply::ok(json!(labels))
}

/// The key of the label in the path.
fn known(call: &Call<'_>) -> Result<String, Reply> {
    let key = call.operation.parameter("name").to_lowercase();
    match call.repo().labels.contains_key(&key) {
        true => Ok(key),
        false => Err(Reply::not_found()),
    }
}

fn one(call: &Call<'_>, status: u16, key: &str) -> Handled {
    let label = call.labels_json(&[key.to_owned()]).pop();
    Ok(Reply::new(status, label.unwrap_or_default()))
}

fn create(call: &mut Call<'_>) -> Handled {
    let name = call.text("name").to_owned();
    let key = name.to_lowercase();
    if call.repo().labels.contains_key(&key) {
        return Err(Reply::invalid("Label", "name", "already_exists", ""));
    }
    let label = RepoLabel {
        id: call.world.new_id(),
        name,
        color: call.body["color"].as_str().unwrap_or("ededed").to_owned(),
        description: call.body["description"].as_str().map(str::to_owned),
    };
    call.repo_mut().labels.insert(key.clone(), label);
    one(call, 201, &key)
}

/// Changes color and description. The fake answers a new name with 501: ralph never renames labels.
fn update(call: &mut Call<'_>) -> Handled {
    let key = known(call)?;
    if call.body.get("new_name").is_some() {
        return call.not_implemented();
    }
    let fields = call.body.clone();
    if let Some(label) = call.repo_mut().labels.get_mut(&key) {
        if let Some(color) = fields["color"].as_str() {
            color.clone_into(&mut label.color);
        }
        if let Some(description) = fields["description"].as_str() {
            label.description = Some(description.to_owned());
        }
    }
    one(call, 200, &key)
}

fn delete(call: &mut Call<'_>) -> Handled {
    let key = known(call)?;
    let repo = call.repo_mut();
    repo.labels.remove(&key);
    for issue in repo.issues.values_mut() {
        issue.labels.retain(|label| *label != key);
    }
    Reply::no_content()
}
