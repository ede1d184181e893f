//! Changes of an issue: its status label and its text, with one write where that is possible.

use serde_json::{Value, json};

use super::error::GitHubError;
use super::issues::{Issue, IssueStatus, Issues};
use super::wire::LabelName;
use crate::text::url_part;

/// The mutations of GraphQL. They have no result that matters here, and GraphQL wants one.
const ADD_LABELS: &str =
    "addLabelsToLabelable(input: {labelableId: $issue, labelIds: $added}) { clientMutationId }";
const REMOVE_LABELS: &str =
    "removeLabelsFromLabelable(input: {labelableId: $issue, labelIds: $removed}) { clientMutationId }";
const SET_BODY: &str = "updateIssue(input: {id: $issue, body: $body}) { clientMutationId }";

/// What is changed. Labels are added and removed by themselves: setting the whole list would remove those that people add at
/// the same time.
struct IssueChange<'i> {
    issue: &'i Issue,
    added: Option<&'static str>,
    removed: Vec<&'i LabelName>,
    body: Option<String>,
}

impl Issues {
    /// Sets the status label, or none, and removes other ones. All other labels stay.
    pub async fn set_status(&self, number: u64, status: Option<IssueStatus>) -> Result<(), GitHubError> {
        self.update(number, status, str::to_owned).await
    }

    /// Like [`Issues::set_status`] if the issue as it is now is still the expected one. Another process may have finished it while
    /// this one was stopped. Returns whether the status was set.
    pub async fn set_status_if(
        &self,
        number: u64,
        status: IssueStatus,
        is_expected: impl FnOnce(&Issue) -> bool,
    ) -> Result<bool, GitHubError> {
        let issue = self.get(number).await?;
        if !is_expected(&issue) {
            return Ok(false);
        }
        self.change(&issue, Some(status), str::to_owned).await?;
        Ok(true)
    }

    /// Like [`Issues::set_status`]; `edit` also returns the new text of the issue.
    pub async fn update(
        &self,
        number: u64,
        status: Option<IssueStatus>,
        edit: impl FnOnce(&str) -> String,
    ) -> Result<(), GitHubError> {
        let issue = self.get(number).await?;
        self.change(&issue, status, edit).await
    }

    async fn change(
        &self,
        issue: &Issue,
        status: Option<IssueStatus>,
        edit: impl FnOnce(&str) -> String,
    ) -> Result<(), GitHubError> {
        let others = IssueStatus::ALL.into_iter().filter(|one| Some(*one) != status);
        let others: Vec<&str> = others.map(IssueStatus::label).collect();
        let is_other = |label: &&LabelName| others.iter().any(|one| one.eq_ignore_ascii_case(&label.name));
        let change = IssueChange {
            added: status
                .filter(|status| !issue.has_status(*status))
                .map(IssueStatus::label),
            removed: issue.labels.iter().filter(is_other).collect(),
            body: Some(edit(issue.body())).filter(|body| body != issue.body()),
            issue,
        };
        match self.change_with_one_call(&change).await {
            // One by one, the errors name the permission.
            Ok(false) | Err(GitHubError::GraphQl { .. }) => self.change_one_by_one(&change).await,
            changed => changed.map(drop),
        }
    }

    /// Makes several changes with one call of GraphQL. `false` if that is not possible: the label does not exist yet, or there
    /// are not several.
    async fn change_with_one_call(&self, change: &IssueChange<'_>) -> Result<bool, GitHubError> {
        let parts =
            change.removed.len() + usize::from(change.added.is_some()) + usize::from(change.body.is_some());
        if parts < 2 || change.issue.node_id.is_empty() {
            return Ok(false);
        }
        let mut fields = Vec::new();
        if let Some(label) = change.added {
            let Some(id) = self.label_id(label).await? else {
                return Ok(false);
            };
            fields.push(("added", "[ID!]!", ADD_LABELS, json!([id])));
        }
        if !change.removed.is_empty() {
            let ids: Vec<&str> = change
                .removed
                .iter()
                .map(|label| label.node_id.as_str())
                .collect();
            fields.push(("removed", "[ID!]!", REMOVE_LABELS, json!(ids)));
        }
        if let Some(body) = &change.body {
            fields.push(("body", "String!", SET_BODY, json!(body)));
        }
        let mut variables = json!({ "issue": change.issue.node_id });
        let (mut declared, mut mutations) = (vec!["$issue: ID!".to_owned()], Vec::new());
        for (name, kind, mutation, value) in fields {
            declared.push(format!("${name}: {kind}"));
            mutations.push(mutation);
            variables[name] = value;
        }
        let query = format!("mutation({}) {{ {} }}", declared.join(", "), mutations.join(" "));
        self.client.mutate("updateIssue", &query, variables).await?;
        Ok(true)
    }

    /// The id of a label in GraphQL. `None` if the repository does not have it.
    async fn label_id(&self, name: &str) -> Result<Option<String>, GitHubError> {
        let path = self.path(&format!("labels/{}", url_part(name)));
        match self.client.get_again::<LabelName>(&path).await {
            Err(error) if error.status() == Some(404) => Ok(None),
            found => Ok(Some(found?.node_id).filter(|id| !id.is_empty())),
        }
    }

    /// The labels come first: they show the result.
    async fn change_one_by_one(&self, change: &IssueChange<'_>) -> Result<(), GitHubError> {
        let issue = self.path(&format!("issues/{}", change.issue.number));
        if let Some(label) = change.added {
            let body = json!({ "labels": [label] });
            self.client.add::<Value>(&format!("{issue}/labels"), body).await?;
        }
        for label in &change.removed {
            let path = format!("{issue}/labels/{}", url_part(&label.name));
            self.client.remove(&path).await?;
        }
        match &change.body {
            Some(body) => self
                .client
                .patch::<Value>(&issue, json!({ "body": body }))
                .await
                .map(drop),
            None => Ok(()),
        }
    }
}
