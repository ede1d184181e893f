//! Stacks of pull requests.

use serde_json::{Value, json};

use super::Call;
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::Stack;

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    if call.repo().stacks.is_none() {
        return Err(Reply::not_found());
    }
    call.repo_mut().refresh_pulls();
    match call.operation.id {
        "pull-request-stacks/list" => list(call),
        "pull-request-stacks/create" => create(call),
        "pull-request-stacks/get" => {
            let stack = find(call)?;
            Reply::ok(shape(call, &stack))
        }
        "pull-request-stacks/add" => add(call),
        _ => call.not_implemented(),
    }
}

fn list(call: &Call<'_>) -> Handled {
    let asked = call
        .asked_for("pull_request")
        .and_then(|number| number.parse::<u64>().ok());
    let stacks = call.repo().stacks.iter().flatten();
    let stacks = stacks.filter(|stack| asked.is_none_or(|number| stack.pulls.contains(&number)));
    call.page(stacks.map(|stack| shape(call, stack)).collect())
}

fn create(call: &mut Call<'_>) -> Handled {
    let pulls = asked_pulls(call);
    check(call, &pulls)?;
    let stack = Stack {
        number: call.world.new_id(),
        pulls,
    };
    call.repo_mut().stacks.get_or_insert_default().push(stack.clone());
    Reply::created(shape(call, &stack))
}

fn add(call: &mut Call<'_>) -> Handled {
    let mut stack = find(call)?;
    let added = asked_pulls(call);
    let top = stack.pulls.last().copied();
    check(
        call,
        &top.into_iter().chain(added.iter().copied()).collect::<Vec<_>>(),
    )?;
    stack.pulls.extend(added);
    for known in call.repo_mut().stacks.iter_mut().flatten() {
        if known.number == stack.number {
            known.pulls.clone_from(&stack.pulls);
        }
    }
    Reply::ok(shape(call, &stack))
}

fn asked_pulls(call: &Call<'_>) -> Vec<u64> {
    let numbers = call.body["pull_requests"].as_array().into_iter().flatten();
    numbers.filter_map(Value::as_u64).collect()
}

/// Each must be open and into the branch of the one before; all but the first must be in no stack.
fn check(call: &Call<'_>, pulls: &[u64]) -> Result<(), Reply> {
    let refuse = |message: &str| Err(Reply::invalid("Stack", "pull_requests", "invalid", message));
    let repo = call.repo();
    let mut below: Option<&str> = None;
    for number in pulls {
        let Some((issue, pull)) = repo.pull(*number) else {
            return refuse("A pull request does not exist");
        };
        if !issue.open || below.is_some_and(|head| pull.base != head) {
            return refuse("Pull requests do not form a chain");
        }
        below = Some(&pull.head);
    }
    let is_stacked = |number: &u64| {
        let mut stacks = repo.stacks.iter().flatten();
        stacks.any(|stack| stack.pulls.contains(number))
    };
    if pulls.iter().skip(1).any(is_stacked) {
        return refuse("A pull request is already in a stack");
    }
    Ok(())
}

fn find(call: &Call<'_>) -> Result<Stack, Reply> {
    let number = call.number("stack_number")?;
    let mut stacks = call.repo().stacks.iter().flatten();
    stacks
        .find(|stack| stack.number == number)
        .cloned()
        .ok_or_else(Reply::not_found)
}

fn shape(call: &Call<'_>, stack: &Stack) -> Value {
    let repo = call.repo();
    let members: Vec<_> = stack
        .pulls
        .iter()
        .filter_map(|number| repo.pull(*number))
        .collect();
    let base = members.first().map(|(_, pull)| pull.base.clone());
    json!({
        "id": stack.number,
        "number": stack.number,
        "node_id": format!("S_{}", stack.number),
        "url": call.repo_url(&format!("/stacks/{}", stack.number)),
        "base": { "ref": base },
        "open": members.iter().any(|(issue, _)| issue.open),
        "created_at": call.world.stamp(),
        "pull_requests": members
            .iter()
            .map(|(issue, pull)| call.pull_json(issue, pull))
            .collect::<Vec<_>>(),
    })
}
