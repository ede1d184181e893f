//! What a history says: the shape of the data files. A key that is not here is an error.

use std::collections::BTreeMap;
use std::fmt::Write;

use ralph::model::Script;
use ralph::state::{Intervention, Sign};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::expected::Expected;
use crate::settings::SettingsShape;

/// One history and its right verdict.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// The rule it shows, in a sentence.
    pub why: String,
    /// Which complaint about comparable tools it answers (`COMPLAINTS` in main.rs).
    pub complaint: Option<u8>,
    /// Files of the repository besides [`FILES`]; those of the same name take their place.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// The task.
    #[serde(default)]
    pub task: TaskShape,
    /// The settings of the run.
    #[serde(default)]
    pub settings: SettingsShape,
    /// Values that must appear in no file, event or commit.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// What a person asks for meanwhile.
    #[serde(default)]
    pub asked: Vec<Asked>,
    /// By how many seconds the wall clock is set, by the iteration at whose beginning that happens.
    #[serde(default)]
    pub clock_jumps: BTreeMap<u32, i64>,
    /// The program that stands in for `claude`, for a history of an agent program.
    pub program: Option<String>,
    /// What the model answers.
    pub script: Script,
    /// What comes of it.
    pub expect: Expected,
    /// What happens after that.
    #[serde(default)]
    pub then: Vec<Later>,
    /// In `wrong/` only: what the report of the wrong verdict must say.
    #[serde(default)]
    pub noticed: Vec<String>,
}

/// The repository that every history begins with: an answer that is wrong, and a test that says so.
pub const FILES: [(&str, &str); 2] = [
    ("answer.txt", "wrong\n"),
    (
        "test.sh",
        "grep -qx right answer.txt || { echo 'the answer is not right' >&2; exit 1; }\n",
    ),
];

/// The task: [`TaskShape::text`] makes a task file of it.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskShape {
    /// Keys of the frontmatter that are not as usual.
    frontmatter: Map<String, Value>,
    /// The checkboxes: the id of each and the line that verifies it; none leaves that to `verify_commands`.
    boxes: BTreeMap<String, Option<String>>,
}

impl Default for TaskShape {
    fn default() -> Self {
        let verify = |line: &str| Some(line.to_owned());
        Self {
            frontmatter: Map::new(),
            boxes: BTreeMap::from([
                ("M1.1".to_owned(), verify("grep -qx right answer.txt")),
                ("M1.2".to_owned(), verify("test -f reason.txt")),
            ]),
        }
    }
}

impl TaskShape {
    /// The task file.
    pub fn text(&self) -> String {
        let mut keys = Map::from_iter([
            ("task_id".to_owned(), Value::from("history")),
            ("test_command".to_owned(), Value::from("sh test.sh")),
        ]);
        keys.extend(self.frontmatter.clone());
        let mut front = String::new();
        for (key, value) in keys {
            let _ = writeln!(front, "{key}: {value}");
        }
        let mut boxes = String::new();
        for (id, verify) in &self.boxes {
            let _ = writeln!(boxes, "- [ ] {id} It holds");
            if let Some(line) = verify {
                let _ = writeln!(boxes, "  - verify: `{line}`");
            }
        }
        format!("---\n{front}---\n# A task with a history\n\n### Milestone M1 All of it\n\n{boxes}")
    }
}

/// A person's request.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// The iteration at whose beginning it is left.
    pub iteration: u32,
    /// What is asked for.
    pub ask: Ask,
}

/// What a person can ask for.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    Stop,
    Pause,
    Rotate,
    Doctor,
    Note(String),
    Sign(Sign),
    Profile {
        name: String,
        #[serde(default)]
        once: bool,
    },
    Edit(TaskShape),
    Retry(u32),
    AllowHosts(Vec<String>),
}

impl Ask {
    /// The same as the run takes it.
    pub fn request(&self) -> Intervention {
        match self {
            Self::Stop => Intervention::Stop,
            Self::Pause => Intervention::Pause,
            Self::Rotate => Intervention::Rotate,
            Self::Doctor => Intervention::Doctor,
            Self::Note(text) => Intervention::Note { text: text.clone() },
            Self::Sign(sign) => Intervention::Sign(sign.clone()),
            Self::Profile { name, once } => Intervention::Profile {
                name: name.clone(),
                once: *once,
            },
            Self::Edit(task) => Intervention::Edit { task: task.text() },
            Self::Retry(from) => Intervention::Retry { from: *from },
            Self::AllowHosts(hosts) => Intervention::AllowHosts { hosts: hosts.clone() },
        }
    }
}

/// What happens after a run has ended or waits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Later {
    /// What a person does.
    again: Again,
    /// What a person asks for before, while the run is at rest.
    #[serde(default)]
    asked: Vec<Ask>,
    /// The settings of this act; those of the history by default.
    settings: Option<SettingsShape>,
    /// What comes of it.
    expect: Expected,
}

/// How it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// With another run of the same task in the same repository.
    NewRun,
    /// With the same run.
    Resume,
}

/// One time that a run is driven until it ends or waits.
pub struct Act<'a> {
    pub again: Again,
    pub asked: &'a [Ask],
    pub settings: &'a SettingsShape,
    pub expect: &'a Expected,
}

impl History {
    /// Reads a data file.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    /// The acts, in order.
    pub fn acts(&self) -> impl Iterator<Item = Act<'_>> {
        let first = Act {
            again: Again::NewRun,
            asked: &[],
            settings: &self.settings,
            expect: &self.expect,
        };
        let later = self.then.iter().map(|later| Act {
            again: later.again,
            asked: &later.asked,
            settings: later.settings.as_ref().unwrap_or(&self.settings),
            expect: &later.expect,
        });
        std::iter::once(first).chain(later)
    }
}
