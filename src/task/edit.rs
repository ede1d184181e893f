//! What an edit of a task changes in the middle of a run.

use super::{Frontmatter, Task};

impl Task {
    /// The keys of the frontmatter that an edit changes although they are fixed when a run is created.
    #[must_use]
    pub fn fixed_keys_changed(&self, edited: &Self) -> Vec<&'static str> {
        let (from, to) = (&self.frontmatter, &edited.frontmatter);
        changed([
            ("task_id", from.task_id != to.task_id),
            ("repo_url", from.repo_url != to.repo_url),
            ("base_branch", from.base_branch != to.base_branch),
            (
                "target_branch_prefix",
                from.target_branch_prefix != to.target_branch_prefix,
            ),
            ("slug", from.slug != to.slug),
            ("sandbox_provider", from.sandbox_provider != to.sandbox_provider),
        ])
    }

    /// The keys of the frontmatter that an edit changes and that a run reads only when it is started or resumed.
    #[must_use]
    pub fn restart_keys_changed(&self, edited: &Self) -> Vec<&'static str> {
        let (from, to) = (&self.frontmatter, &edited.frontmatter);
        let tokens_removed = from.max_tokens_total.is_some() && to.max_tokens_total.is_none();
        changed([
            ("sandbox_image", from.sandbox_image != to.sandbox_image),
            (
                "sandbox_resources",
                from.sandbox_resources != to.sandbox_resources,
            ),
            (
                "model_profile_fallback",
                from.model_profile_fallback != to.model_profile_fallback,
            ),
            ("max_tokens_total", tokens_removed),
        ])
    }

    /// The configuration keys that an edit sets to another value.
    #[must_use]
    pub fn settings_changed(&self, edited: &Self) -> Vec<&'static str> {
        let before = self.frontmatter.overrides();
        let after = edited.frontmatter.overrides().into_iter();
        let is_new = |setting: &(&'static str, String)| !before.contains(setting);
        after.filter(is_new).map(|(key, _)| key).collect()
    }

    /// Whether an edit leaves a checkbox as it is: its text, and the commands that verify it.
    #[must_use]
    pub fn keeps_checkbox(&self, edited: &Self, id: &str) -> bool {
        let find = |task: &Self| {
            let mut checkboxes = task.checkboxes.iter();
            let found = checkboxes.find(|checkbox| checkbox.id.as_str() == id)?;
            Some((found.text.clone(), task.verify_commands(found).to_vec()))
        };
        find(self).is_some_and(|before| find(edited) == Some(before))
    }
}

fn changed<const N: usize>(keys: [(&'static str, bool); N]) -> Vec<&'static str> {
    let changed = keys.into_iter().filter(|(_, is_changed)| *is_changed);
    changed.map(|(key, _)| key).collect()
}

impl Frontmatter {
    /// The model profile that an edit chooses.
    pub(crate) fn profile_chosen<'a>(&self, edited: &'a Self) -> Option<&'a str> {
        let chosen = edited.model_profile_default.as_deref();
        chosen.filter(|name| self.model_profile_default.as_deref() != Some(name))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TASK: &str = "---\ntask_id: t\ntest_command: make\nmax_iterations: 3\nmax_tokens_total: 9\n---\n# T\n\n\
                        - [ ] M1.1 One\n  - verify: `one`\n- [ ] M1.2 Two\n";

    fn edited(from: &str, to: &str) -> (Task, Task) {
        assert!(TASK.contains(from));
        let parse = |text: &str| Task::parse(text).unwrap();
        (parse(TASK), parse(&TASK.replace(from, to)))
    }

    #[rstest]
    #[case("task_id: t", "task_id: u", &["task_id"], &[])]
    #[case("task_id: t", "task_id: t\nrepo_url: https://example.com/a.git\nbase_branch: dev", &["repo_url", "base_branch"], &[])]
    #[case("task_id: t", "task_id: t\nsandbox_provider: local", &["sandbox_provider"], &[])]
    #[case("task_id: t", "task_id: t\nsandbox_image: x", &[], &["sandbox_image"])]
    #[case("max_tokens_total: 9\n", "", &[], &["max_tokens_total"])]
    #[case("max_iterations: 3", "max_iterations: 4", &[], &[])]
    fn keys_that_a_run_does_not_follow_are_named(
        #[case] from: &str,
        #[case] to: &str,
        #[case] fixed: &[&str],
        #[case] restart: &[&str],
    ) {
        let (before, after) = edited(from, to);
        assert_eq!(before.fixed_keys_changed(&after), fixed);
        assert_eq!(before.restart_keys_changed(&after), restart);
    }

    #[rstest]
    #[case("One", "Another", &["M1.2"])]
    #[case("`one`", "`other`", &["M1.2"])]
    #[case("- [ ] M1.2 Two\n", "", &["M1.1"])]
    #[case("test_command: make", "test_command: make\nverify_commands: [two]", &["M1.1"])]
    #[case("# T", "# Title", &["M1.1", "M1.2"])]
    fn a_checkbox_is_kept_with_its_text_and_its_commands(
        #[case] from: &str,
        #[case] to: &str,
        #[case] kept: &[&str],
    ) {
        let (before, after) = edited(from, to);
        let keeps = |id: &&str| before.keeps_checkbox(&after, id);
        let found: Vec<&str> = ["M1.1", "M1.2"].into_iter().filter(keeps).collect();
        assert_eq!(found, kept);
    }
}
