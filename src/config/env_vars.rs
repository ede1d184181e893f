//! Every environment variable that ralph knows, in one table. The reference page and `.env.example` are made from it.

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// Its name.
    pub name: &'static str,
    /// What it is for, in one sentence.
    pub doc: &'static str,
    /// How it is used.
    pub role: Role,
}

/// How a variable is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A credential: never shown, never passed to a sandbox.
    Secret,
    /// Belongs to a credential but is not confidential.
    Identifier,
    /// Sets this key of the configuration.
    Key(&'static str),
    /// The program itself looks at it, before there is a configuration.
    Program,
    /// Only the build of ralph looks at it.
    Build,
    /// Only ralph's own tests look at it.
    Tests,
}

impl EnvVar {
    /// Whether the value must not be seen.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        match self.role {
            Role::Secret => true,
            Role::Identifier | Role::Key(_) | Role::Program | Role::Build | Role::Tests => false,
        }
    }

    /// The variable of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        ENV_VARS.iter().find(|var| var.name == name)
    }
}

/// Every variable with a name of its own. Besides these, `RALPH_<SECTION>__<KEY>` sets any key.
pub const ENV_VARS: &[EnvVar] = &[
    EnvVar {
        name: "LITELLM_API_KEY",
        doc: "Key of the model endpoint, unless `model_endpoint.api_key_env` names another variable.",
        role: Role::Secret,
    },
    EnvVar {
        name: "ZAI_API_KEY",
        doc: "Key of Z.ai, the provider of the default profile.",
        role: Role::Secret,
    },
    EnvVar {
        name: "OPENAI_API_KEY",
        doc: "Key of OpenAI.",
        role: Role::Secret,
    },
    EnvVar {
        name: "ANTHROPIC_API_KEY",
        doc: "Key of Anthropic.",
        role: Role::Secret,
    },
    EnvVar {
        name: "ANTHROPIC_AUTH_TOKEN",
        doc: "Token that a gateway of your own takes from `claude` in place of a key.",
        role: Role::Secret,
    },
    EnvVar {
        name: "CLAUDE_CODE_OAUTH_TOKEN",
        doc: "Login of Claude, as `claude setup-token` makes one; what `ralph token store` keeps comes first.",
        role: Role::Secret,
    },
    EnvVar {
        name: "CURSOR_API_KEY",
        doc: "Key of Cursor, for the agent `cursor`.",
        role: Role::Secret,
    },
    EnvVar {
        name: "GITHUB_PAT",
        doc: "Personal access token for GitHub, for the repository that `sandbox.github` names.",
        role: Role::Secret,
    },
    EnvVar {
        name: "GITHUB_APP_ID",
        doc: "Id of the GitHub App to act as, instead of a personal access token.",
        role: Role::Identifier,
    },
    EnvVar {
        name: "GITHUB_APP_INSTALLATION_ID",
        doc: "Id of the installation of that GitHub App.",
        role: Role::Identifier,
    },
    EnvVar {
        name: "GITHUB_APP_PRIVATE_KEY_PEM",
        doc: "Private key of that GitHub App, in PEM form; in double quotes it may stretch over lines.",
        role: Role::Secret,
    },
    EnvVar {
        name: "DAYTONA_API_KEY",
        doc: "Key of Daytona, for the `daytona` provider.",
        role: Role::Secret,
    },
    EnvVar {
        name: "DAYTONA_API_URL",
        doc: "Where Daytona answers, where that is not its own cloud.",
        role: Role::Program,
    },
    EnvVar {
        name: "DAYTONA_TARGET",
        doc: "The region that sandboxes at Daytona are made in.",
        role: Role::Program,
    },
    EnvVar {
        name: "RALPH_DB_URL",
        doc: "Address of the database that indexes runs, with its password.",
        role: Role::Secret,
    },
    EnvVar {
        name: "RALPH_DEFAULT_PROVIDER",
        doc: "The provider of sandboxes.",
        role: Role::Key("sandbox.type"),
    },
    EnvVar {
        name: "RALPH_DEFAULT_MODEL_PROFILE",
        doc: "The model profile a run begins with.",
        role: Role::Key("default_profile"),
    },
    EnvVar {
        name: "RALPH_FALLBACK_MODEL_PROFILE",
        doc: "The model profile the ladder switches to.",
        role: Role::Key("fallback_profile"),
    },
    EnvVar {
        name: "RALPH_HOME",
        doc: "Where ralph keeps its data.",
        role: Role::Program,
    },
    EnvVar {
        name: "RALPH_MARK",
        doc: "Set by ralph for everything it starts, to find it again; a ralph started by a ralph passes it over.",
        role: Role::Program,
    },
    EnvVar {
        name: "NO_COLOR",
        doc: "Turns colours off when it is set to anything.",
        role: Role::Program,
    },
    EnvVar {
        name: "RALPH_GUEST",
        doc: "The program that runs commands in sandboxes, where ralph cannot build it itself; read when ralph is built.",
        role: Role::Build,
    },
    EnvVar {
        name: "RALPH_TEST_LITELLM",
        doc: "Where the tests find the LiteLLM proxy; `tests/run` sets it.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_TEST_AGENTS",
        doc: "The folder in which the tests find the real agent programs; `tests/run` sets it.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_TEST_PODMAN",
        doc: "Where podman answers that the tests load images into; `tests/run` sets it.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_TEST_CONTAINERD",
        doc: "Where an engine answers that keeps its images in containerd; `tests/run` sets it.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_TEST_BUILDX",
        doc: "The buildx that the tests build with on that engine; `tests/run` sets it.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_TEST_SKIPS",
        doc: "File to which tests add what they skipped.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_TEST_REQUIRE_ALL",
        doc: "Turns a skipped test into a failure.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_CRASH_SEED",
        doc: "Seed of the moments at which the crash tests kill a run; random without it.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_CRASH_KILLS",
        doc: "How often the crash tests kill a run, all in all.",
        role: Role::Tests,
    },
    EnvVar {
        name: "RALPH_UPDATE_REFERENCE",
        doc: "Set to 1, lets the tests rewrite the generated reference.",
        role: Role::Tests,
    },
];
