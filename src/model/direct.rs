//! Services that ralph calls itself, with a key of the user and no gateway between.

use reqwest::Url;

use super::prices::{ListPrice, PriceTable};

/// A service whose models are named `PREFIX/MODEL`.
#[derive(Debug)]
pub struct DirectService {
    /// The first part of the names of its models.
    pub prefix: &'static str,
    /// Its name in messages.
    pub name: &'static str,
    /// The variable that holds its key; `None` if it needs none.
    pub key_variable: Option<&'static str>,
    /// The variable that replaces its address.
    pub url_variable: &'static str,
    /// Its address.
    pub base_url: &'static str,
    /// Whether its answers say what the call cost.
    pub reports_cost: bool,
    /// Whether its current models accept a temperature. Those of OpenAI and Anthropic refuse a call that has one.
    pub takes_temperature: bool,
    pub(super) dialect: ApiDialect,
    /// The path, after that of the API, of a free request that needs a valid key.
    pub(super) check_path: Option<&'static str>,
}

/// How a service is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiDialect {
    /// OpenAI's chat completions. Services differ in the name of the field that limits an answer.
    Chat { limit_field: &'static str },
    /// Anthropic's Messages.
    Messages,
}

/// Every service that is called directly.
pub static DIRECT_SERVICES: [DirectService; 6] = [
    DirectService {
        prefix: "zai",
        name: "Z.ai",
        key_variable: Some("ZAI_API_KEY"),
        url_variable: "ZAI_BASE_URL",
        base_url: "https://api.z.ai/api/paas/v4",
        reports_cost: false,
        takes_temperature: true,
        dialect: MAX_TOKENS,
        check_path: None,
    },
    DirectService {
        prefix: "openai",
        name: "OpenAI",
        key_variable: Some("OPENAI_API_KEY"),
        url_variable: "OPENAI_BASE_URL",
        base_url: "https://api.openai.com/v1",
        reports_cost: false,
        takes_temperature: false,
        // Its newer models refuse `max_tokens`.
        dialect: ApiDialect::Chat {
            limit_field: "max_completion_tokens",
        },
        check_path: Some("/models"),
    },
    DirectService {
        prefix: "anthropic",
        name: "Anthropic",
        key_variable: Some("ANTHROPIC_API_KEY"),
        url_variable: "ANTHROPIC_BASE_URL",
        base_url: "https://api.anthropic.com",
        reports_cost: false,
        takes_temperature: false,
        dialect: ApiDialect::Messages,
        check_path: Some("/models"),
    },
    DirectService {
        prefix: "openrouter",
        name: "OpenRouter",
        key_variable: Some("OPENROUTER_API_KEY"),
        url_variable: "OPENROUTER_BASE_URL",
        base_url: "https://openrouter.ai/api/v1",
        reports_cost: true,
        takes_temperature: true,
        dialect: MAX_TOKENS,
        // Its list of models is public.
        check_path: Some("/key"),
    },
    DirectService {
        prefix: "gemini",
        name: "Google",
        key_variable: Some("GEMINI_API_KEY"),
        url_variable: "GEMINI_BASE_URL",
        base_url: "https://generativelanguage.googleapis.com/v1beta/openai",
        reports_cost: false,
        takes_temperature: true,
        dialect: MAX_TOKENS,
        check_path: Some("/models"),
    },
    DirectService {
        prefix: "ollama",
        name: "Ollama",
        key_variable: None,
        url_variable: "OLLAMA_BASE_URL",
        base_url: "http://127.0.0.1:11434/v1",
        reports_cost: false,
        takes_temperature: true,
        dialect: MAX_TOKENS,
        check_path: Some("/models"),
    },
];

const MAX_TOKENS: ApiDialect = ApiDialect::Chat {
    limit_field: "max_tokens",
};

impl DirectService {
    /// The service of a model, and the name of the model there; `None` if no service has this prefix.
    #[must_use]
    pub fn for_model(model: &str) -> Option<(&'static Self, &str)> {
        let (prefix, name) = model.split_once('/')?;
        let service = DIRECT_SERVICES.iter().find(|service| service.prefix == prefix)?;
        (!name.is_empty()).then_some((service, name))
    }

    /// The prefixes of all services, for messages.
    #[must_use]
    pub fn prefixes() -> String {
        let prefixes = DIRECT_SERVICES
            .each_ref()
            .map(|service| format!("`{}/`", service.prefix));
        prefixes.join(", ")
    }

    /// The price of a model at this address; `None` if it is unknown. List prices are those of the service's own address, or
    /// of a proxy on this computer or in its network. A service without a key is free there.
    #[must_use]
    pub fn list_price(&self, model: &str, base_url: &str) -> Option<ListPrice> {
        match self.key_variable {
            Some(_) if base_url != self.base_url && !is_nearby(base_url) => None,
            Some(_) => PriceTable::shipped().price(model),
            None => is_nearby(base_url).then_some(ListPrice::FREE),
        }
    }
}

/// Whether an address is on this computer or in a private network.
fn is_nearby(base_url: &str) -> bool {
    let url = Url::parse(base_url).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse() {
        Ok(std::net::IpAddr::V4(address)) => address.is_loopback() || address.is_private(),
        Ok(std::net::IpAddr::V6(address)) => address.is_loopback() || address.is_unique_local(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("zai/glm-4.7", Some(("zai", "glm-4.7")))]
    #[case("openrouter/anthropic/claude-opus-5", Some(("openrouter", "anthropic/claude-opus-5")))]
    #[case("mistral/large", None)]
    #[case("gpt-5-mini", None)]
    #[case("openai/", None)]
    fn a_model_is_at_the_service_of_its_prefix(#[case] model: &str, #[case] expected: Option<(&str, &str)>) {
        let found = DirectService::for_model(model);
        assert_eq!(found.map(|(service, name)| (service.prefix, name)), expected);
    }

    #[rstest]
    #[case::own("https://api.openai.com/v1", true)]
    #[case::proxy_on_this_computer("http://127.0.0.1:4000", true)]
    #[case::another_vendor("https://models.example.org/v1", false)]
    fn a_list_price_belongs_to_the_address_of_its_service(#[case] url: &str, #[case] is_known: bool) {
        let (service, _) = DirectService::for_model("openai/gpt-5-mini").unwrap();
        assert_eq!(service.list_price("openai/gpt-5-mini", url).is_some(), is_known);
    }

    #[rstest]
    #[case("http://127.0.0.1:11434/v1", true)]
    #[case("http://localhost:11434/v1", true)]
    #[case("http://192.168.1.7:11434", true)]
    #[case("http://[::1]:11434", true)]
    #[case("https://ollama.com/v1", false)]
    #[case("http://8.8.8.8/v1", false)]
    fn only_a_nearby_model_is_free(#[case] address: &str, #[case] free: bool) {
        let (ollama, _) = DirectService::for_model("ollama/qwen3").unwrap();
        assert_eq!(
            ollama.list_price("ollama/qwen3", address),
            free.then_some(ListPrice::FREE)
        );
    }
}
