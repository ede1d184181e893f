//! The environment of a sandbox's commands: plain values, and secrets of the host that stay outside.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::gateway::HeaderSecret;
use crate::network::{HostPattern, Policy, PolicyRule};
use crate::sandbox::daytona::DaytonaSecret;
use crate::sandbox::{CredentialRoute, Provider, SandboxSpec, check_policy};
use crate::secret::Secret;

use super::broker::allow_rules;
use super::{AssemblyError, ErrorTopic};

/// What `[sandbox.env]` and `[sandbox.secrets]` give to the commands of a sandbox.
#[derive(Debug, Default)]
pub(crate) struct CommandEnv {
    /// Variables with their values, placeholders among them.
    variables: BTreeMap<String, String>,
    /// The secrets behind the placeholders.
    secrets: Vec<HeaderSecret>,
    /// The hosts of those secrets.
    hosts: Vec<HostPattern>,
    /// Secrets that the provider stores and inserts itself.
    pub(crate) handed_over: Vec<DaytonaSecret>,
}

impl CommandEnv {
    /// The configured environment, for sandboxes of this provider.
    pub(crate) fn new(config: &Config, provider: &dyn Provider) -> Result<Self, AssemblyError> {
        let mut env = Self {
            variables: config.settings.sandbox.env.clone(),
            ..Self::default()
        };
        for (name, settings) in &config.settings.sandbox.secrets {
            let host_variable = settings.from.as_ref().unwrap_or(name);
            let Some(value) = config.credential(host_variable) else {
                return Err(AssemblyError::usage(format!(
                    "sandbox.secrets.{name}: the variable `{host_variable}` is not set"
                ))
                .with_topic(ErrorTopic::Configuration)
                .with_hint(
                    "set it in the environment or in .env, or remove the secret from the configuration",
                ));
            };
            if settings.dangerously_pass {
                env.variables.insert(name.clone(), value.expose().to_owned());
            } else {
                env.add(name, value, &settings.hosts, provider)?;
            }
        }
        Ok(env)
    }

    /// Adds a secret that stays outside.
    fn add(
        &mut self,
        name: &str,
        value: Secret,
        hosts: &[HostPattern],
        provider: &dyn Provider,
    ) -> Result<(), AssemblyError> {
        let refused = |reason: &str| {
            let place = format!("sandbox.secrets.{name}: {reason}");
            AssemblyError::usage(place).with_topic(ErrorTopic::Configuration).with_hint(format!(
                "sandbox.secrets.{name}.dangerously_pass = true gives the value itself to everything in the sandbox"
            ))
        };
        match provider.capabilities().credentials {
            CredentialRoute::Gateway => {
                let policy = Policy::allowlist([]).inspecting(hosts.iter().cloned());
                check_policy(provider, &policy).map_err(|error| refused(&error.to_string()))?;
                let secret = HeaderSecret::new(name, value, hosts.to_vec());
                let secret = secret.map_err(|error| refused(&error.to_string()))?;
                self.variables
                    .insert(name.to_owned(), secret.placeholder().to_owned());
                self.hosts.extend(hosts.iter().cloned());
                self.secrets.push(secret);
            }
            CredentialRoute::Provider => {
                let names = hosts.iter().map(|hosts| hosts.to_string().parse());
                let names: Result<Vec<_>, _> = names.collect();
                self.handed_over.push(DaytonaSecret {
                    variable: name.to_owned(),
                    value,
                    hosts: names.map_err(|_| {
                        refused("its hosts must be whole names, because Daytona inserts secrets by host name")
                    })?,
                });
            }
            CredentialRoute::Loopback | CredentialRoute::ProxiedLoopback | CredentialRoute::None => {
                let provider = provider.name();
                return Err(refused(&format!(
                    "the provider `{provider}` cannot keep it outside the sandbox"
                )));
            }
        }
        Ok(())
    }

    /// The same sandbox with this environment. The hosts of secrets are allowed and inspected.
    pub(crate) fn apply(&self, mut spec: SandboxSpec) -> Result<SandboxSpec, AssemblyError> {
        let rules = self.hosts.iter().map(|hosts| {
            let rule = PolicyRule::parse(&hosts.to_string())?;
            Ok(rule.at("added for a secret"))
        });
        let rules: Result<Vec<PolicyRule>, crate::network::PolicyRuleError> = rules.collect();
        let rules = rules
            .map_err(|error| AssemblyError::usage(error.to_string()).with_topic(ErrorTopic::Configuration))?;
        spec.network = allow_rules(spec.network, rules).inspecting(self.hosts.iter().cloned());
        spec.env.extend(self.variables.clone());
        spec.egress.secrets.clone_from(&self.secrets);
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;

    use super::super::provider::create_provider;
    use super::super::{AssemblyContext, SilentReporter, Surroundings};
    use super::*;
    use crate::config::{self, ConfigInputs, ConfigOverride, SettingPlace};
    use crate::id::RunId;
    use crate::network::PolicyMode;

    const KEPT: &str = "sandbox.secrets.KEY.hosts=api.example.org";

    /// The environment of commands of this provider, with these settings.
    fn env_of(provider: &str, settings: &[&str]) -> Result<CommandEnv, AssemblyError> {
        let all = [&format!("sandbox.type={provider}"), "sandbox.image=an-image"];
        let flags = all.iter().chain(settings).map(|flag| {
            let (key, value) = flag.split_once('=').unwrap();
            ConfigOverride {
                key: key.to_owned(),
                value: value.to_owned(),
                place: SettingPlace::Flag(key.to_owned()),
            }
        });
        let variables = [("KEY", "real"), ("RALPH_HOME", "/nowhere")];
        let env: BTreeMap<String, String> = variables.map(|(name, value)| (name.into(), value.into())).into();
        let config = config::load(&ConfigInputs {
            env: env.clone(),
            flags: flags.collect(),
            ..ConfigInputs::default()
        })
        .unwrap();
        let context = AssemblyContext::new(Surroundings::new(env, "/nowhere"), Arc::new(SilentReporter));
        CommandEnv::new(&config, create_provider(&context, &config).unwrap().as_ref())
    }

    #[rstest]
    #[case::denied(Policy::deny())]
    #[case::listed(Policy::allowlist([]))]
    #[case::open(Policy::allow_all())]
    fn commands_have_a_placeholder_and_its_host_is_inspected(#[case] policy: Policy) {
        let was_open = policy.mode == PolicyMode::AllowAll;
        let env = env_of("docker", &[KEPT, "sandbox.env.PLAIN=value"]).unwrap();
        let spec = SandboxSpec {
            network: policy,
            ..SandboxSpec::unrestricted(RunId::random())
        };
        let spec = env.apply(spec).unwrap();
        assert_eq!(spec.env["PLAIN"], "value");
        assert_eq!(spec.env["KEY"], "ralph-KEY-placeholder");
        let judged = |name: &str| spec.network.judge_name(&name.parse().unwrap()).is_ok();
        assert!(judged("api.example.org"));
        assert_eq!(judged("other.example.org"), was_open);
        let inspected = |name: &str| spec.network.inspects(&name.parse().unwrap(), 443);
        assert!(inspected("api.example.org") && !inspected("other.example.org"));
        assert_eq!(spec.egress.secrets.len(), 1);
        assert!(!format!("{spec:?}").contains("real"));
    }

    #[rstest]
    #[case("local", "the provider `local` cannot keep it outside the sandbox")]
    #[case(
        "docker-sandbox",
        "the provider `docker-sandbox` cannot keep it outside the sandbox"
    )]
    #[case("tart", "cannot inspect TLS")]
    fn a_provider_that_cannot_keep_a_secret_outside_is_refused(#[case] provider: &str, #[case] reason: &str) {
        let refused = env_of(provider, &[KEPT]).unwrap_err();
        assert!(refused.to_string().contains("sandbox.secrets.KEY: "), "{refused}");
        assert!(refused.to_string().contains(reason), "{refused}");
        assert!(refused.hint().unwrap().contains("dangerously_pass"));
        let passed = env_of(provider, &["sandbox.secrets.KEY.dangerously_pass=true"]).unwrap();
        assert_eq!(passed.variables["KEY"], "real");
        assert!(passed.secrets.is_empty());
    }

    #[test]
    fn daytona_keeps_secrets_itself() {
        let env = env_of("daytona", &[KEPT]).unwrap();
        assert!(env.variables.is_empty() && env.secrets.is_empty());
        let [secret] = env.handed_over.as_slice() else {
            panic!("{env:?}");
        };
        assert_eq!((secret.variable.as_str(), secret.value.expose()), ("KEY", "real"));
        assert_eq!(secret.hosts, ["api.example.org".parse().unwrap()]);
        let refused = env_of("daytona", &["sandbox.secrets.KEY.hosts=*.example.org"]).unwrap_err();
        assert!(refused.to_string().contains("whole names"), "{refused}");
    }

    #[test]
    fn a_secret_that_is_not_set_is_named() {
        let missing = env_of("docker", &[KEPT, "sandbox.secrets.KEY.from=OTHER"]).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "sandbox.secrets.KEY: the variable `OTHER` is not set"
        );
    }
}
