//! The user, the limits, and Apps.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Call;
use super::shapes::repo_json;
use crate::fake_github::auth::{App, Caller, Identity, InstallationToken, TOKEN_LIFE, permissions_json};
use crate::fake_github::reply::{Handled, Reply};
use crate::fake_github::world::{Role, stamp, user};

pub(super) fn handle(call: &mut Call<'_>) -> Handled {
    match call.operation.id {
        "rate-limit/get" => rate_limit(call),
        "users/get-authenticated" => get_user(call),
        "apps/get-authenticated" => {
            let app = app(call)?;
            Reply::ok(json!({
                "id": app.id, "slug": app.slug, "name": app.slug, "node_id": "A_1", "owner": user("acme"),
                "permissions": permissions_json(&app.permissions), "events": [],
            }))
        }
        "apps/list-installations" => call.page(vec![installation_json(call, app(call)?)]),
        "apps/get-installation" => {
            let app = installed(call)?;
            Reply::ok(installation_json(call, app))
        }
        "apps/get-repo-installation" => get_repo_installation(call),
        "apps/create-installation-access-token" => create_token(call),
        "apps/list-repos-accessible-to-installation" => list_repos(call),
        _ => call.not_implemented(),
    }
}

fn rate_limit(call: &Call<'_>) -> Handled {
    let (limit, left) = call.world.limits.primary(call.caller.login());
    let reset = call.world.now().as_second() + 3600;
    let rate = json!({ "limit": limit, "remaining": left, "used": limit - left, "reset": reset });
    let search = json!({ "limit": 30, "remaining": 30, "used": 0, "reset": reset });
    Reply::ok(json!({ "resources": { "core": rate, "search": search }, "rate": rate }))
}

fn get_user(call: &Call<'_>) -> Handled {
    match &call.caller {
        Caller::Token(identity) if identity.installation.is_none() => {
            let mut shape = user(&identity.login);
            shape["user_view_type"] = json!("public");
            Reply::ok(shape)
        }
        Caller::Token(_) => Err(Reply::refuse(403, "Resource not accessible by integration")),
        Caller::Anonymous | Caller::App(_) => Err(Reply::refuse(401, "Requires authentication")),
    }
}

/// The App that calls with its JWT.
fn app<'a>(call: &'a Call<'_>) -> Result<&'a App, Reply> {
    let Caller::App(id) = call.caller else {
        return Err(Reply::refuse(401, "A JSON web token could not be decoded"));
    };
    let app = call.world.accounts.apps.iter().find(|app| app.id == id);
    app.ok_or_else(Reply::not_found)
}

/// The App that calls, if the installation of the path is its own.
fn installed<'a>(call: &'a Call<'_>) -> Result<&'a App, Reply> {
    let app = app(call)?;
    if app.installation == call.number("installation_id")? {
        Ok(app)
    } else {
        Err(Reply::not_found())
    }
}

fn installation_json(call: &Call<'_>, app: &App) -> Value {
    let owner = app.repos.first().and_then(|repo| repo.split('/').next());
    json!({
        "id": app.installation,
        "app_id": app.id,
        "app_slug": app.slug,
        "account": user(owner.unwrap_or_default()),
        "target_id": 1,
        "target_type": "Organization",
        "permissions": permissions_json(&app.permissions),
        "repository_selection": "selected",
        "access_tokens_url": format!("{}/app/installations/{}/access_tokens", call.url, app.installation),
        "events": [],
    })
}

fn get_repo_installation(call: &Call<'_>) -> Handled {
    let app = app(call)?;
    if app.repos.contains(&call.repo().name) {
        Reply::ok(installation_json(call, app))
    } else {
        Err(Reply::not_found())
    }
}

/// Makes a token, for fewer repositories and permissions if the request says so.
fn create_token(call: &mut Call<'_>) -> Handled {
    let app = installed(call)?;
    let mut permissions = app.permissions.clone();
    if let Some(wanted) = call.body["permissions"].as_object() {
        for (name, level) in wanted {
            let granted = permissions.get(name).copied();
            if granted.is_none_or(|write| level == "write" && !write) {
                let message = "The permissions requested are not granted to this installation.";
                return Err(Reply::refuse(422, message));
            }
        }
        let level = |value: &Value| value == "write";
        permissions = wanted
            .iter()
            .map(|(name, value)| (name.clone(), level(value)))
            .collect();
    }
    let mut repos = app.repos.clone();
    if let Some(wanted) = call.body["repositories"].as_array() {
        let is_wanted = |repo: &String| wanted.iter().any(|name| repo.split('/').nth(1) == name.as_str());
        repos.retain(is_wanted);
        if repos.len() != wanted.len() {
            let message = "There is at least one repository that does not exist or is not accessible to the parent installation.";
            return Err(Reply::refuse(422, message));
        }
    }
    let login = format!("{}[bot]", app.slug);
    let installation = app.installation;
    let expires: Timestamp = call.world.now() + TOKEN_LIFE;
    let token = format!("ghs_{:036}", call.world.new_id());
    let shown = permissions_json(&permissions);
    let installation = Some(InstallationToken {
        installation,
        expires,
        repos,
    });
    call.world.accounts.tokens.insert(
        token.clone(),
        Identity {
            login,
            permissions,
            installation,
        },
    );
    Reply::created(json!({
        "token": token, "expires_at": stamp(expires), "permissions": shown, "repository_selection": "selected",
    }))
}

fn list_repos(call: &Call<'_>) -> Handled {
    let Caller::Token(Identity {
        installation: Some(token),
        ..
    }) = &call.caller
    else {
        return Err(Reply::refuse(
            403,
            "You must authenticate with an installation access token in order to list repositories for an installation.",
        ));
    };
    let repos = call
        .world
        .repos
        .iter()
        .filter(|repo| token.repos.contains(&repo.name));
    let repos = repos.map(|repo| repo_json(repo, call.url, Role::Write)).collect();
    call.page_of("repositories", repos)
}
