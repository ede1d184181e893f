//! Attacks on the hand-back: what a clone in a sandbox holds, against the repository that it comes back to.

use std::path::Path;
use std::time::Duration;

use crate::exec::{Command, Discard, Host};
use crate::id::ObjectId;
use crate::sandbox::escapes::{AttackClass, AttackResult, AttackVerdict};
use crate::sandbox::{Sandbox, clone_dir};
use crate::scm::{
    CloneStart, CommitIdentity, DEFAULT_BUNDLE_LIMIT, HandBackRequest, PrivateClone, Repository, ScmError,
    SeedPack, hand_back, trust_variables,
};
use crate::secret::Redactor;
use crate::text::error_chain;

use crate::cli::{CliError, ErrorTopic};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Creates the repository that is attacked.
const CREATE: &str = "git init --quiet --initial-branch=main . && echo one > a.txt && git add a.txt && \
    git -c user.name=ralph -c user.email=ralph@localhost commit --quiet --message=first";
/// Everything of a repository that no hand-back may change, apart from objects.
const STATE: &str = "git for-each-ref; git --no-optional-locks status --porcelain; git ls-files --stage; \
    cat .git/HEAD .git/config; ls .git/hooks .git/info";
/// Prepares attacks: `commit_entry NAME` commits a tree with an entry of this name, a directory with a hook.
const FUNCTIONS: &str = r#"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost
commit_entry() {
  blob=$(echo 'echo hit > MARKER' | git hash-object -w --stdin)
  inner=$(printf '100755 blob %s\tpost-checkout\n' "$blob" | git mktree)
  tree=$( (git ls-tree HEAD; printf '040000 tree %s\t%s\n' "$inner" "$1") | git mktree)
  git update-ref HEAD "$(git commit-tree -p HEAD -m hostile "$tree")"
}
"#;

/// What an agent does in its clone, and whether its commits may come back.
const ATTACKS: [(&str, bool, &str); 8] = [
    (
        "a usual commit comes back",
        true,
        "echo two > b.txt; git add b.txt; git commit --quiet -m usual",
    ),
    (
        "hooks and settings of the clone do not run on the host",
        true,
        r#"mkdir -p .git/hooks; for hook in post-checkout reference-transaction pre-receive post-update pre-auto-gc; do
             printf '#!/bin/sh\necho hit > MARKER\nexit 0\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook; done
           echo two > b.txt; git add b.txt; git commit --quiet -m hooks
           for key in core.fsmonitor core.pager core.sshCommand diff.external uploadpack.packObjectsHook credential.helper; do
             git config "$key" 'echo hit > MARKER; false'; done"#,
    ),
    (
        "branches, tags and replacements of the clone are not imported",
        true,
        "echo two > b.txt; git add b.txt; git commit --quiet -m refs; git branch evil; git tag evil; \
         git replace HEAD~1 HEAD; git update-ref refs/ralph/evil HEAD",
    ),
    (
        "a directory that is named .git is refused",
        false,
        "commit_entry .git",
    ),
    (
        "a directory that is named .GIT is refused",
        false,
        "commit_entry .GIT",
    ),
    ("a short name of .git is refused", false, "commit_entry git~1"),
    (
        "a name that leads out of its directory is refused",
        false,
        "commit_entry ..",
    ),
    (
        "commits without the base are refused",
        false,
        "git update-ref HEAD \"$(git commit-tree -m orphan 'HEAD^{tree}')\"",
    ),
];

/// Attacks the hand-back of work from this sandbox into a repository that was made for it. `None` if the sandbox has no git.
pub(super) async fn attack(host: Host, sandbox: &dyn Sandbox) -> Result<Option<Vec<AttackResult>>, CliError> {
    let has_git = Command::shell("command -v git").timeout(TIMEOUT);
    if !sandbox.exec_trusted(&has_git, &mut Discard).await?.success() {
        return Ok(None);
    }
    let dir = tempfile::tempdir().map_err(|error| cannot("create a repository", error))?;
    let user = dir.path().join("user");
    std::fs::create_dir(&user).map_err(|error| cannot("create a repository", error))?;
    let user = HostDir { host, path: &user };
    user.run(CREATE).await?;
    let target = HandBackTarget::open(&user, dir.path()).await?;
    let mut results = Vec::new();
    for (name, may_arrive, line) in ATTACKS {
        let before = user.run(STATE).await?;
        let outcome = target.take(sandbox, line).await?;
        let is_changed = user.run(STATE).await? != before;
        let seen = match (&outcome.arrived, outcome.ran_on_host || is_changed) {
            (_, true) => "the repository was changed, or a command ran on the host".to_owned(),
            (Ok(()), false) => "the commit arrived".to_owned(),
            (Err(error), false) => error.clone(),
        };
        let holds = !outcome.ran_on_host && !is_changed && outcome.arrived.is_ok() == may_arrive;
        results.push(AttackResult {
            name: name.to_owned(),
            class: AttackClass::HandBack,
            verdict: if holds {
                AttackVerdict::Enforced
            } else {
                AttackVerdict::Open
            },
            seen,
            reason: AttackClass::HandBack.defence().to_owned(),
        });
    }
    Ok(Some(results))
}

/// A directory of the host.
struct HostDir<'a> {
    host: Host,
    path: &'a Path,
}

impl HostDir<'_> {
    /// Runs a line of shell, and returns what it prints.
    async fn run(&self, line: &str) -> Result<String, CliError> {
        let command = Command::shell(line).cwd(self.path).timeout(TIMEOUT);
        let exit = self.host.run(&command, &mut Discard).await;
        let exit = exit.map_err(|error| cannot("run git", error))?;
        Ok(exit.stdout.text())
    }
}

/// The repository that is attacked.
struct HandBackTarget<'a> {
    repository: Repository,
    base: ObjectId,
    seed: SeedPack,
    dir: &'a Path,
}

/// What came of one attack.
struct HandBackOutcome {
    /// Whether the commit is in the repository, or why not.
    arrived: Result<(), String>,
    ran_on_host: bool,
}

impl<'a> HandBackTarget<'a> {
    async fn open(user: &HostDir<'_>, dir: &'a Path) -> Result<Self, CliError> {
        let repository = Repository::open(user.host.clone(), user.path).await?;
        let base = repository.resolve("HEAD").await?;
        let seed = SeedPack::create(&repository, &[&base], &[], &dir.join("seed")).await?;
        Ok(Self {
            repository,
            base,
            seed,
            dir,
        })
    }

    /// Runs a line in a new clone, and hands back its branch.
    async fn take(&self, sandbox: &dyn Sandbox, line: &str) -> Result<HandBackOutcome, CliError> {
        let start = CloneStart {
            branch: "ralph/selftest".to_owned(),
            commit: self.base.clone(),
            identity: CommitIdentity::new("ralph", "ralph@localhost")
                .map_err(|error| cannot("clone", error))?,
            format: self.repository.object_format(),
        };
        let inside = clone_dir(sandbox);
        let seed = std::slice::from_ref(&self.seed);
        let clone = PrivateClone::create(sandbox, inside.clone(), seed, start).await?;
        let marker = self.dir.join("marker");
        let script = format!("{FUNCTIONS}{line}\n").replace("MARKER", &marker.to_string_lossy());
        let mut command = Command::shell(script).cwd(&inside).timeout(TIMEOUT);
        for (name, value) in trust_variables(&inside) {
            command = command.env(name, value);
        }
        sandbox.exec(&command, &mut Discard).await?;
        let handed_back: Result<ObjectId, ScmError> = async {
            let snapshot = clone.snapshot().await?;
            let request = HandBackRequest {
                base: &self.base,
                snapshot: &snapshot,
                known: &[],
                limit: DEFAULT_BUNDLE_LIMIT,
                redactor: &Redactor::default(),
            };
            let back = hand_back(&self.repository, &clone, &request, &self.dir.join("run")).await?;
            self.repository.resolve(&format!("{}^{{commit}}", back.tip)).await
        }
        .await;
        let arrived = match handed_back {
            Ok(tip) if tip == self.base => Err("no commit was made".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error_chain(&error)),
        };
        Ok(HandBackOutcome {
            arrived,
            ran_on_host: marker.exists(),
        })
    }
}

fn cannot(action: &str, error: impl std::fmt::Display) -> CliError {
    CliError::runtime(format!(
        "cannot {action} for the attacks on the hand-back: {error}"
    ))
    .with_topic(ErrorTopic::Sandbox)
}
