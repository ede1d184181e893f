//! The prices of models.

use crate::usage::Price;

/// The prices of models by name.
#[derive(Clone, Debug, Default)]
pub struct PriceList(Vec<(String, Price)>);

impl PriceList {
    /// A list of model names and prices. A name is the one that the service or LiteLLM uses.
    pub fn new(prices: impl IntoIterator<Item = (String, Price)>) -> Self {
        Self(prices.into_iter().collect())
    }

    /// The price of a model. The name that an agent uses may have a provider prefix or a release date that the list does
    /// not have, and the other way round.
    #[must_use]
    pub fn price(&self, model: &str) -> Option<Price> {
        let listed = |wanted: &dyn Fn(&str) -> bool| {
            let mut found = self.0.iter().filter(|(name, _)| wanted(name));
            found.next().map(|(_, price)| *price)
        };
        let asked = without_date(without_provider(model));
        listed(&|name| name == model)
            .or_else(|| listed(&|name| without_provider(name) == without_provider(model)))
            .or_else(|| listed(&|name| without_date(without_provider(name)) == asked))
    }
}

fn without_provider(model: &str) -> &str {
    model.rsplit_once('/').map_or(model, |(_, name)| name)
}

fn without_date(model: &str) -> &str {
    match model.rsplit_once('-') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => model,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::usage::Usd;

    #[rstest]
    #[case::as_listed("anthropic/claude-opus-4-5", Some(1.0))]
    #[case::without_the_provider("claude-opus-4-5", Some(1.0))]
    #[case::with_a_date("claude-opus-4-5-20251101", Some(1.0))]
    #[case::the_nearest_name_wins("gpt-5-20250807", Some(3.0))]
    #[case::a_date_may_be_listed("gpt-5", Some(2.0))]
    #[case::another_model("claude-opus-4", None)]
    #[case::a_longer_name("gpt-5-mini", None)]
    fn a_price_is_found_by_model_name(#[case] model: &str, #[case] dollars: Option<f64>) {
        let price = |dollars: f64| {
            let usd = Usd::from_dollars(dollars).unwrap();
            Price {
                input_per_million: usd,
                output_per_million: usd,
            }
        };
        let names = ["anthropic/claude-opus-4-5", "gpt-5", "openai/gpt-5-20250807"];
        let listed = names.iter().zip([1.0, 2.0, 3.0]);
        let prices = PriceList::new(listed.map(|(name, dollars)| ((*name).to_owned(), price(dollars))));
        assert_eq!(prices.price(model), dollars.map(price));
    }
}
