//! What errors are about, and where the documentation explains them.

/// One list for the variants, [`ErrorTopic::ALL`] and the anchors.
macro_rules! error_topics {
    ($($(#[$doc:meta])* $topic:ident $anchor:literal;)*) => {
        /// What an error is about. Each topic is a section of `docs/troubleshooting.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorTopic {
            $($(#[$doc])* $topic,)*
        }

        impl ErrorTopic {
            /// Every topic, in the order of the sections.
            pub const ALL: &[Self] = &[$(Self::$topic),*];

            /// The name of the section. It does not change between versions.
            #[must_use]
            pub fn anchor(self) -> &'static str {
                match self {
                    $(Self::$topic => $anchor,)*
                }
            }
        }
    };
}

error_topics! {
    /// The command line, or a run that it names.
    Usage "usage";
    /// A setting.
    Configuration "configuration";
    /// The task, a script or a template.
    Task "task";
    /// Git on the host, and the repository that a run starts from.
    Repository "repository";
    /// The work that an agent hands back.
    HandBack "hand-back";
    /// The image of a sandbox.
    Image "image";
    /// Nix.
    Nix "nix";
    /// Docker, podman and registries.
    Engine "engine";
    /// Providers and their sandboxes.
    Sandbox "sandbox";
    /// The network policy and its enforcement.
    Network "network";
    /// The checks before a run.
    NotReady "not-ready";
    /// Stored credentials and logins.
    Credentials "credentials";
    /// Agent programs.
    Agent "agent";
    /// Calls of models.
    Model "model";
    /// Budgets and recorded costs.
    Budget "budget";
    /// The branch, the pull request and the issues at a forge.
    Forge "forge";
    /// Signed evidence.
    Evidence "evidence";
    /// The directory of a run, its journal and its owner.
    Run "run";
    /// The index of runs and the queue.
    Store "store";
    /// The API, the dashboard and their clients.
    Service "service";
    /// What a person interrupted.
    Interrupted "interrupted";
}

impl ErrorTopic {
    /// The address of the section, in the documentation of this version.
    #[must_use]
    pub fn url(self) -> String {
        format!(
            "{}/blob/v{}/docs/troubleshooting.md#{}",
            env!("CARGO_PKG_REPOSITORY"),
            env!("CARGO_PKG_VERSION"),
            self.anchor()
        )
    }
}
