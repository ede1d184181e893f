//! Tokens and cost of model calls.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The model tokens of one or more calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    /// Tokens of prompts.
    pub input: u64,
    /// Tokens of answers.
    pub output: u64,
}

impl Tokens {
    /// Input and output tokens together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

impl Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
        }
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// An amount of money in US dollars, counted in billionths so that sums are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Usd(u64);

const NANOS: f64 = 1e9;

impl Usd {
    /// No cost.
    pub const ZERO: Self = Self(0);

    /// A number of cents.
    #[must_use]
    pub const fn from_cents(cents: u32) -> Self {
        Self(cents as u64 * 10_000_000)
    }

    /// Converts a number of dollars. `None` for a negative number, one that is not finite, or a billion and more. Fractions
    /// of a billionth are rounded up, because a budget must not be undercounted.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be finite, positive and below 1e9 dollars"
    )]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let fits = dollars.is_finite() && (0.0..1e9).contains(&dollars);
        fits.then(|| Self((dollars * NANOS).ceil() as u64))
    }

    /// A number of billionths of a dollar.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The amount in billionths of a dollar.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The difference, or zero where `other` is more.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The amount times `count`.
    #[must_use]
    pub fn saturating_mul(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// A part of the amount in percent, rounded up.
    #[must_use]
    pub fn percent(self, percent: u64) -> Self {
        let nanos = u128::from(self.0).saturating_mul(percent.into()).div_ceil(100);
        Self(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The amount in so many parts that add up to it and differ by a billionth at most, the larger ones first.
    pub fn split(self, count: u32) -> impl Iterator<Item = Self> {
        let divisor = u64::from(count.max(1));
        let (part, rest) = (self.0 / divisor, self.0 % divisor);
        (0..u64::from(count)).map(move |index| Self(part + u64::from(index < rest)))
    }

    /// The cost of a duration when this is the price of an hour, rounded up.
    #[must_use]
    pub fn for_duration(self, time: Duration) -> Self {
        const HOUR: u128 = 3_600_000;
        let nanos = u128::from(self.0).saturating_mul(time.as_millis()).div_ceil(HOUR);
        Self(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The number of dollars, for people and for JSON.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / NANOS
    }
}

impl Add for Usd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Usd {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Usd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${:.4}", self.dollars())
    }
}

/// The price of a model, per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// The price of a million input tokens.
    pub input_per_million: Usd,
    /// The price of a million output tokens.
    pub output_per_million: Usd,
}

impl Price {
    /// The cost of these tokens, rounded up.
    #[must_use]
    pub fn cost_of(self, tokens: Tokens) -> Usd {
        let part = |count: u64, price: Usd| u128::from(count) * u128::from(price.0);
        let sum = part(tokens.input, self.input_per_million) + part(tokens.output, self.output_per_million);
        Usd(u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

/// The most that a call can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallBound {
    /// The tokens that it can use. They count when the service reports nothing.
    pub tokens: Tokens,
    /// The part that is known of a call without a bound, such as one with tools that the service runs. It is made while no
    /// other call is in progress.
    pub known: Option<Tokens>,
    /// The most that an input token can cost, in percent of its price.
    pub input_percent: u64,
    /// What all tokens cost, in percent of their price.
    pub price_percent: u64,
}

impl From<Tokens> for CallBound {
    fn from(tokens: Tokens) -> Self {
        Self {
            tokens,
            known: None,
            input_percent: 100,
            price_percent: 100,
        }
    }
}

impl CallBound {
    /// The most that these tokens of the call can cost.
    #[must_use]
    pub fn cost_of(self, tokens: Tokens, price: Price) -> Usd {
        let input = tokens.input.saturating_mul(self.input_percent).div_ceil(100);
        price
            .cost_of(Tokens { input, ..tokens })
            .percent(self.price_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_never_rounded_down() {
        assert!(Usd::from_dollars(4.999_999_999_999_999_6e-05).unwrap() >= Usd(50_000));
        assert_eq!(Usd::from_dollars(f64::NAN), None);
        assert_eq!(Usd::from_dollars(-1.0), None);
    }

    #[test]
    fn a_time_costs_its_part_of_an_hour() {
        let hour = Usd::from_dollars(2.0).unwrap();
        assert_eq!(
            hour.for_duration(Duration::from_secs(90 * 60)).to_string(),
            "$3.0000"
        );
        assert_eq!(Usd(1).for_duration(Duration::from_millis(1)), Usd(1));
        assert_eq!(hour.saturating_mul(3).to_string(), "$6.0000");
    }

    #[test]
    fn a_price_covers_both_directions() {
        let price = Price {
            input_per_million: Usd::from_dollars(1.0).unwrap(),
            output_per_million: Usd::from_dollars(3.0).unwrap(),
        };
        let cost = price.cost_of(Tokens {
            input: 1_000_000,
            output: 2_000_000,
        });
        assert_eq!(cost.to_string(), "$7.0000");
    }
}
