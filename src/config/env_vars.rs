//! The table of all environment variables. The reference page and `.env.example` are generated from it.

use crate::model::CredentialRecord;

/// One variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// Its name.
    pub name: &'static str,
    /// What it is for, in one sentence.
    pub doc: &'static str,
    /// How it is used.
    pub role: EnvVarRole,
}

/// How a variable is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvVarRole {
    /// A credential: never shown, never passed to a sandbox.
    Secret,
    /// Belongs to a credential but is not secret.
    Identifier,
    /// Sets this key of the configuration.
    Key(&'static str),
    /// Read before the configuration is loaded.
    Program,
    /// Read when ralph is built.
    Build,
    /// Read by ralph's own tests only.
    Tests,
}

impl EnvVar {
    /// Whether the value must not be shown.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        self.role == EnvVarRole::Secret
    }

    /// The variable of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        env_vars().find(|var| var.name == name)
    }
}

/// Every variable with a name of its own: the credentials of the model services, then the others. Besides these,
/// `RALPH_<SECTION>__<KEY>` sets any key.
pub fn env_vars() -> impl Iterator<Item = EnvVar> {
    let credentials = CredentialRecord::all().map(|kind| EnvVar {
        name: kind.variable,
        doc: kind.variable_doc,
        role: EnvVarRole::Secret,
    });
    credentials.chain(OTHER_VARS.iter().copied())
}

macro_rules! other_vars {
    ($($role:ident $(($key:literal))? $name:ident: $doc:literal;)*) => {
        const OTHER_VARS: &[EnvVar] = &[$(EnvVar {
            name: stringify!($name),
            doc: $doc,
            role: EnvVarRole::$role $(($key))?,
        }),*];
    };
}

other_vars! {
    Secret ZAI_API_KEY: "Key of Z.ai, for models named `zai/...`, such as that of the default profile.";
    Secret OPENROUTER_API_KEY: "Key of OpenRouter, for models named `openrouter/...`.";
    Identifier ZAI_BASE_URL: "Address of Z.ai's API for `zai/...`, if not its own, with the path before `/chat/completions`.";
    Identifier OPENAI_BASE_URL: "Address of OpenAI's API for `openai/...`, if not its own, with `/v1`.";
    Identifier ANTHROPIC_BASE_URL: "Address of Anthropic's API for `anthropic/...`, if not its own. The agent `claude` does not get it.";
    Identifier OPENROUTER_BASE_URL: "Address of OpenRouter's API for `openrouter/...`, if not its own, with `/v1`.";
    Identifier GEMINI_BASE_URL: "Address of Google's OpenAI-compatible API for `gemini/...`, if not its own, with the path before `/chat/completions`.";
    Identifier OLLAMA_BASE_URL: "Address of Ollama for `ollama/...`, if not `http://127.0.0.1:11434/v1`.";
    Secret ANTHROPIC_AUTH_TOKEN: "Token that your own gateway accepts from `claude` instead of a key.";
    Secret GITHUB_PAT: "Personal access token for GitHub: for the forge `github`, and for the repository that `sandbox.github` names.";
    Identifier GITHUB_APP_ID: "Id of the GitHub App to act as, instead of a personal access token.";
    Identifier GITHUB_APP_INSTALLATION_ID: "Id of the installation of that GitHub App.";
    Secret GITHUB_APP_PRIVATE_KEY_PEM: "Private key of that GitHub App, in PEM format; in double quotes it may span lines.";
    Secret DAYTONA_API_KEY: "Key of Daytona, for the `daytona` provider.";
    Program DAYTONA_API_URL: "Address of Daytona's API, if not its own cloud.";
    Program DAYTONA_TARGET: "The region of sandboxes at Daytona.";
    Secret RALPH_DB_URL: "Address of the store (index of runs and queue), with its password: `postgres://USER:PASSWORD@HOST/DATABASE` or `sqlite:///FILE`; by default `ralph.db` in the data directory. A relative path starts from the directory of `.env`.";
    Secret RALPH_API_TOKEN: "Token for the service that `ralph watch --url` shows, from `ralph api-token create`.";
    Key("sandbox.type") RALPH_DEFAULT_PROVIDER: "The provider of sandboxes.";
    Key("default_profile") RALPH_DEFAULT_MODEL_PROFILE: "The model profile that a run starts with.";
    Key("fallback_profile") RALPH_FALLBACK_MODEL_PROFILE: "The model profile that the ladder switches to.";
    Program RALPH_HOME: "The directory of ralph's data.";
    Program RALPH_TOKEN_SERVER: "Address of the server that renews logins, instead of the vendor's; for tests.";
    Program RALPH_MARK: "Set by ralph for every process that it starts, to find them again; a nested ralph ignores it.";
    Program OTEL_EXPORTER_OTLP_ENDPOINT: "Address of a receiver of OpenTelemetry, to which runs send their traces (OTLP over HTTP, as JSON). Not read from `.env`.";
    Secret OTEL_EXPORTER_OTLP_HEADERS: "Headers of the requests to the receiver of OpenTelemetry: `name=value`, separated by commas.";
    Program NO_COLOR: "Turns colours off when set to anything.";
    Build RALPH_GUEST: "A prebuilt guest program of the same version, for builds of ralph that cannot build it; read at build time.";
    Tests RALPH_TEST_LITELLM: "Path of the LiteLLM proxy for the tests; set by `tests/run`.";
    Tests RALPH_TEST_AGENTS: "Directory of the real agent programs for the tests; set by `tests/run`.";
    Tests RALPH_TEST_PRISM: "Path of Prism, which checks traffic against an OpenAPI document, for the tests; set by `tests/run`.";
    Tests RALPH_TEST_DAYTONA_SDK: "Python with Daytona's SDK for the tests; set by `tests/run`.";
    Tests RALPH_TEST_SCHEMATHESIS: "Path of Schemathesis, which makes requests from an OpenAPI document, for the tests; set by `tests/run`.";
    Tests RALPH_TEST_AXE: "Path of the script of axe-core, which checks pages for accessibility, for the tests; set by `tests/run`.";
    Tests RALPH_TEST_KEDA_VALIDATE: "Path of a program that validates a ScaledJob by the models of KEDA, for the tests; set by `tests/run`.";
    Tests RALPH_TEST_KUBERNETES_VALIDATE: "Path of kubernetes-validate, which has the schemas of Kubernetes, for the tests; set by `tests/run`.";
    Tests RALPH_TEST_PODMAN: "Address of a podman that the tests load images into and run sandboxes on; set by `tests/run`.";
    Tests RALPH_TEST_CONTAINERD: "Address of an engine that stores its images in containerd, for the tests; set by `tests/run`.";
    Tests RALPH_TEST_BUILDX: "The buildx for that engine; set by `tests/run`.";
    Tests RALPH_TEST_COMPOSE: "Path of Docker Compose for the tests; set by `tests/run`.";
    Tests RALPH_TEST_ENGINE: "The engine that sandboxes are tested on in place of the usual one.";
    Tests RALPH_TEST_SEAL: "How sealed networks are tested: `handed` or `relayed`.";
    Tests RALPH_TEST_WORKSPACE: "Where workspaces are tested: `shared` or `volume`.";
    Tests RALPH_TEST_SKIPS: "File to which tests add what they skip.";
    Tests RALPH_TEST_REQUIRE_ALL: "Turns a skipped test into a failure.";
    Tests RALPH_CRASH_SEED: "Seed for the moments at which the crash tests kill a run; random by default.";
    Tests RALPH_CRASH_KILLS: "How often the crash tests kill a run in total.";
    Tests RALPH_GITHUB_KILLS: "How often the tests of the forge `github` kill a run in total.";
    Tests RALPH_GITHUB_ISSUES: "How many issues the tests let two pollers work through.";
    Tests RALPH_GITHUB_RACES: "How many races over a claim on an issue the tests hold.";
    Tests RALPH_WORKER_RUNS: "How many runs the tests let three workers work through.";
    Tests RALPH_WORKER_FAULTS: "How often the tests kill or suspend one of these workers.";
    Tests RALPH_SOAK_MINUTES: "How many minutes the soak goes on; 2 by default. Set by `tests/soak`, like the next two.";
    Tests RALPH_SOAK_SEED: "Seed for the rounds of the soak; random by default.";
    Tests RALPH_SOAK_ROUND: "The only round of the soak to play.";
    Tests RALPH_BENCH_QUICK: "Set to 1 to measure less often in the benchmarks; set by `benches/run --quick`.";
    Tests RALPH_BENCH_JSON: "File that a benchmark writes its samples to; set by `benches/run`.";
    Tests RALPH_BENCH_SUFFIX: "What the names of a benchmark's figures end in; set where it is run in several ways.";
    Tests RALPH_BENCH_MINUTES: "How many minutes the benchmark of the dashboard writes to a log; 10 by default.";
    Tests RALPH_UPDATE_REFERENCE: "Set to 1 to let the tests rewrite the generated reference.";
}
