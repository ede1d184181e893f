//! The list prices that ship with the program, for services that do not report what a call costs.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::usage::{Price, Tokens, Usd};

/// The prices of models, per million tokens, as a release of LiteLLM has them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// The release that the prices are from.
    pub release: String,
    /// The file in that release.
    pub file: String,
    /// The licence of that file.
    pub license: String,
    /// The day on which the release was downloaded.
    pub retrieved: String,
    /// What else there is to know.
    pub note: String,
    /// Addresses of the release and of the services' own price lists.
    pub sources: Vec<String>,
    /// The prices by model, with the prefix of its service.
    pub models: BTreeMap<String, ListPrice>,
}

/// The price of a model, per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct ListPrice {
    /// The prices of a call.
    #[serde(flatten)]
    rates: TokenRates,
    /// The prices of a call with a long prompt.
    long: Option<LongRates>,
}

/// What a million tokens of each kind cost.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct TokenRates {
    input: Dollars,
    output: Dollars,
    /// Input that the service had cached. By default it costs as much as other input.
    cached_input: Option<Dollars>,
    /// Input that the service puts into its cache.
    cache_write: Option<Dollars>,
}

/// The prices of a call whose prompt has more tokens than this.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct LongRates {
    above_input_tokens: u64,
    #[serde(flatten)]
    rates: TokenRates,
}

/// A price in the file, in dollars.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
struct Dollars(Usd);

impl TryFrom<f64> for Dollars {
    type Error = &'static str;

    fn try_from(dollars: f64) -> Result<Self, Self::Error> {
        Usd::from_dollars(dollars)
            .map(Self)
            .ok_or("a price is a number of dollars")
    }
}

/// The tokens of a call by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BilledTokens {
    /// All tokens; the other fields are part of its input.
    pub all: Tokens,
    /// Input tokens that the service had cached.
    pub cached: u64,
    /// Input tokens that the service put into its cache.
    pub written: u64,
}

impl PriceTable {
    /// The table that ships with the program.
    #[must_use]
    pub fn shipped() -> &'static Self {
        static TABLE: LazyLock<PriceTable> = LazyLock::new(|| {
            let table = serde_json::from_str(include_str!("prices.json"));
            table.unwrap_or_else(|error| unreachable!("a test reads the price table: {error}"))
        });
        &TABLE
    }

    /// The price of a model such as `zai/glm-4.7`; `None` if it is unknown.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<ListPrice> {
        self.models.get(model).copied()
    }
}

impl ListPrice {
    /// The price of a model on the user's own computer.
    pub const FREE: Self = Self {
        rates: TokenRates {
            input: Dollars(Usd::ZERO),
            output: Dollars(Usd::ZERO),
            cached_input: None,
            cache_write: None,
        },
        long: None,
    };

    /// What the tokens of a call cost, rounded up.
    #[must_use]
    pub fn cost_of(&self, tokens: BilledTokens) -> Usd {
        let rates = self.rates_for(tokens.all.input);
        let cached = tokens.cached.min(tokens.all.input);
        let written = tokens.written.min(tokens.all.input - cached);
        let part = |count: u64, rate: Dollars| {
            let rate = Price {
                input_per_million: rate.0,
                output_per_million: Usd::ZERO,
            };
            rate.cost_of(Tokens {
                input: count,
                output: 0,
            })
        };
        part(tokens.all.input - cached - written, rates.input)
            + part(cached, rates.cached_input.unwrap_or(rates.input))
            + part(written, rates.cache_write.unwrap_or(rates.input))
            + part(tokens.all.output, rates.output)
    }

    /// The most that these tokens can cost: all input may be written to a cache.
    #[must_use]
    pub fn worst_cost(&self, tokens: Tokens) -> Usd {
        let of = |written| {
            self.cost_of(BilledTokens {
                all: tokens,
                cached: 0,
                written,
            })
        };
        of(0).max(of(tokens.input))
    }

    /// The price of a million input and output tokens, for people.
    #[must_use]
    pub fn per_million(&self) -> Price {
        Price {
            input_per_million: self.rates.input.0,
            output_per_million: self.rates.output.0,
        }
    }

    fn rates_for(&self, input: u64) -> TokenRates {
        match self.long {
            Some(long) if input > long.above_input_tokens => long.rates,
            _ => self.rates,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::model::DirectService;

    #[test]
    fn the_shipped_table_has_models_of_the_direct_services_only() {
        let table = PriceTable::shipped();
        assert!(table.models.len() >= 40, "{}", table.models.len());
        for (model, price) in &table.models {
            assert!(DirectService::for_model(model).is_some(), "{model}");
            let price = price.per_million();
            assert!(
                price.input_per_million > Usd::ZERO && price.output_per_million > price.input_per_million,
                "{model}: {price:?}"
            );
        }
        assert!(table.release.starts_with("litellm ") && table.license.starts_with("MIT"));
    }

    #[rstest]
    #[case::plain("zai/glm-4.7", 1_000_000, 0, 0, 0.6)]
    #[case::cached("zai/glm-4.7", 1_000_000, 500_000, 0, 0.355)]
    #[case::more_cached_than_there_is("zai/glm-4.7", 1_000_000, 9_000_000, 0, 0.11)]
    #[case::no_price_for_writing("zai/glm-5-code", 1_000_000, 0, 1_000_000, 1.2)]
    #[case::written("anthropic/claude-opus-4-5", 1_000_000, 0, 1_000_000, 6.25)]
    #[case::up_to_the_limit("gemini/gemini-2.5-pro", 200_000, 0, 0, 0.25)]
    #[case::long("gemini/gemini-2.5-pro", 200_001, 0, 0, 0.500_002_5)]
    fn input_is_priced_by_kind(
        #[case] model: &str,
        #[case] input: u64,
        #[case] cached: u64,
        #[case] written: u64,
        #[case] dollars: f64,
    ) {
        let tokens = BilledTokens {
            all: Tokens { input, output: 0 },
            cached,
            written,
        };
        let price = PriceTable::shipped().price(model).unwrap();
        assert_eq!(Some(price.cost_of(tokens)), Usd::from_dollars(dollars));
        assert!(price.worst_cost(tokens.all) >= price.cost_of(tokens));
    }

    #[test]
    fn an_unlisted_model_has_no_price() {
        assert_eq!(PriceTable::shipped().price("zai/glm-0"), None);
        assert_eq!(PriceTable::shipped().price("glm-4.7"), None);
    }
}
