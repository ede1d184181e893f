//! The resources of a sandbox in Daytona's units, and their price.

use super::DaytonaPrices;
use crate::sandbox::{HourlyCost, Resources};
use crate::usage::Usd;

const GIGABYTE: u64 = 1 << 30;

/// Daytona's defaults: processors, gigabytes of memory, gigabytes of disk.
const DEFAULTS: (u64, u64, u64) = (1, 1, 3);

/// Resources in whole processors and gigabytes.
#[derive(Default)]
pub(super) struct DaytonaSize {
    pub(super) cpu: Option<u64>,
    pub(super) memory: Option<u64>,
    pub(super) disk: Option<u64>,
}

/// Resources in whole processors and gigabytes, rounded up.
pub(super) fn size(resources: &Resources) -> DaytonaSize {
    let gigabytes = |bytes: u64| bytes.div_ceil(GIGABYTE);
    DaytonaSize {
        cpu: resources
            .cpu_millis
            .map(|millis| u64::from(millis.div_ceil(1000))),
        memory: resources.memory_bytes.map(gigabytes),
        disk: resources.disk_bytes.map(gigabytes),
    }
}

/// The estimated price of an hour of a running sandbox.
pub(super) fn hourly_cost(resources: &Resources, prices: &DaytonaPrices) -> HourlyCost {
    let size = size(resources);
    let cpu = size.cpu.unwrap_or(DEFAULTS.0);
    let memory = size.memory.unwrap_or(DEFAULTS.1);
    let disk = size.disk.unwrap_or(DEFAULTS.2);
    let parts = [
        prices.cpu_hour.saturating_mul(cpu),
        prices.memory_gb_hour.saturating_mul(memory),
        prices.disk_gb_hour.saturating_mul(disk),
    ];
    HourlyCost {
        price: parts.into_iter().fold(Usd::ZERO, |sum, part| sum + part),
        resources: format!("processors: {cpu}, memory: {memory} GB, disk: {disk} GB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(cpu_millis: Option<u32>, memory_bytes: Option<u64>) -> Resources {
        Resources {
            memory_bytes,
            cpu_millis,
            disk_bytes: None,
        }
    }

    #[test]
    fn resources_are_rounded_up() {
        let size = size(&resources(Some(1500), Some(GIGABYTE + 1)));
        assert_eq!((size.cpu, size.memory, size.disk), (Some(2), Some(2), None));
    }

    #[test]
    fn the_price_is_the_sum_of_its_parts() {
        let dollar = |dollars| Usd::from_dollars(dollars).unwrap();
        let prices = DaytonaPrices {
            cpu_hour: dollar(1.0),
            memory_gb_hour: dollar(0.1),
            disk_gb_hour: dollar(0.01),
        };
        let asked = hourly_cost(&resources(Some(2000), Some(4 * GIGABYTE)), &prices);
        assert_eq!(asked.price, dollar(2.43));
        assert_eq!(hourly_cost(&resources(None, None), &prices).price, dollar(1.13));
    }
}
