//! Variations of known attacks: spelling, order, encoding and timing.

use std::time::{Duration, Instant};

use fastrand::Rng;

use super::attack::Attack;
use super::{AttackResult, AttackVerdict, Attacker, EscapeError, TRANSIT_TIME};
use crate::network::probe::{Probe, ProbeResult, ProbeTransport};

/// How many attacks run between two positive controls.
const CONTROL_EVERY: usize = 200;
/// How many successful attacks are reported; the suite ends there.
const MAX_OPEN: usize = 20;

/// Runs variations of the attacks for this long. Returns those that succeeded, and the number of the others by class.
pub(super) async fn run_mutations(
    attacker: &Attacker<'_>,
    attacks: &[Attack<Probe>],
    duration: Duration,
) -> Result<Vec<AttackResult>, EscapeError> {
    let seed = fastrand::u64(..);
    let (mut random, end) = (Rng::with_seed(seed), Instant::now() + duration);
    let (mut open, mut held) = (Vec::new(), std::collections::BTreeMap::new());
    for round in 1_usize.. {
        if Instant::now() >= end || open.len() >= MAX_OPEN || attacks.is_empty() {
            break;
        }
        let attack = &attacks[random.usize(..attacks.len())];
        let action = mutate(&attack.action, &mut random);
        let observed = attacker.run(&action).await?;
        tokio::time::sleep(TRANSIT_TIME).await;
        let hits = attacker.setup.take_hits_of(attack.class);
        if hits.is_empty() && !is_success(&action, &observed) {
            *held.entry(attack.class).or_insert(0_usize) += 1;
        } else {
            open.push(AttackResult {
                name: format!("{} (variation)", attack.name),
                class: attack.class,
                verdict: AttackVerdict::Open,
                seen: observed.to_string(),
                reason: format!("{}; {action} (seed {seed})", hits.join(", ")),
            });
        }
        if round % CONTROL_EVERY == 0 {
            attacker.check_control().await?;
        }
    }
    let counted = held.into_iter().map(|(class, count)| AttackResult {
        name: format!("{count} variations of known attacks fail"),
        class,
        verdict: AttackVerdict::Enforced,
        seen: "nothing reached the host".to_owned(),
        reason: format!("{} (seed {seed})", class.defence()),
    });
    open.extend(counted);
    Ok(open)
}

/// Whether the attacker saw a success. How a variation fails does not matter.
fn is_success(probe: &Probe, seen: &ProbeResult) -> bool {
    match seen {
        ProbeResult::Done | ProbeResult::Http { status: 200, .. } => true,
        ProbeResult::Address(_) => matches!(probe, Probe::Lookup { .. }),
        ProbeResult::Received(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            text.starts_with("HTTP/1.1 2") || text.starts_with("HTTP/1.0 2")
        }
        _ => false,
    }
}

/// The same attack, written or sent in another way.
fn mutate(probe: &Probe, random: &mut Rng) -> Probe {
    match probe {
        Probe::Lookup { name, server } => Probe::Lookup {
            name: respell(name, random),
            server: *server,
        },
        Probe::Get { host, at } if !host.contains(':') => Probe::Get {
            host: respell(host, random),
            at: *at,
        },
        Probe::Exchange { transport, to, bytes } => {
            let bytes = match std::str::from_utf8(bytes) {
                Ok(text) if text.ends_with("\r\n\r\n") => rewrite(text, random).into_bytes(),
                _ => flip_case(bytes, random),
            };
            match transport {
                ProbeTransport::Tcp if random.u8(..3) == 0 => Probe::Trickle {
                    to: *to,
                    parts: split(&bytes, random),
                },
                transport => Probe::Exchange {
                    transport: *transport,
                    to: *to,
                    bytes,
                },
            }
        }
        other => other.clone(),
    }
}

/// A name in other letters, with or without a dot at the end.
fn respell(name: &str, random: &mut Rng) -> String {
    let mut name = String::from_utf8_lossy(&flip_case(name.as_bytes(), random)).into_owned();
    if random.bool() {
        name.push('.');
    }
    name
}

/// Letters in upper or lower case. No other byte of a DNS query or a client hello of ours is a letter.
fn flip_case(bytes: &[u8], random: &mut Rng) -> Vec<u8> {
    let flip = |byte: &u8| {
        if random.bool() {
            byte.to_ascii_uppercase()
        } else {
            byte.to_ascii_lowercase()
        }
    };
    bytes.iter().map(flip).collect()
}

/// An HTTP request with its headers in another order and spelling, perhaps after an empty line.
fn rewrite(request: &str, random: &mut Rng) -> String {
    let mut lines = request.trim_end().split("\r\n");
    let first = lines.next().unwrap_or_default();
    let mut headers: Vec<String> = lines
        .map(|line| match line.split_once(": ") {
            Some((name, value)) => {
                let space = ["", " ", "  ", "\t"][random.usize(..4)];
                let name = String::from_utf8_lossy(&flip_case(name.as_bytes(), random)).into_owned();
                format!("{name}:{space}{value}")
            }
            None => line.to_owned(),
        })
        .collect();
    random.shuffle(&mut headers);
    let start = ["", "\r\n", "\n"][random.usize(..3)];
    let lines = [format!("{start}{first}")].into_iter().chain(headers);
    let lines: Vec<String> = lines.chain([String::new(), String::new()]).collect();
    lines.join("\r\n")
}

/// Two to four parts.
fn split(bytes: &[u8], random: &mut Rng) -> Vec<Vec<u8>> {
    let mut parts = vec![bytes.to_vec()];
    for _ in 0..random.usize(1..4) {
        let Some(last) = parts.last_mut().filter(|last| last.len() > 1) else {
            break;
        };
        let rest = last.split_off(random.usize(1..last.len()));
        parts.push(rest);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variation_names_the_same_hosts() {
        let mut random = Rng::with_seed(7);
        let request = "GET http://denied.test/ HTTP/1.1\r\nhost: allowed.test\r\nx-a: b\r\n\r\n";
        let probe = Probe::Exchange {
            transport: ProbeTransport::Tcp,
            to: "192.0.2.1:80".parse().unwrap(),
            bytes: request.into(),
        };
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let bytes = match mutate(&probe, &mut random) {
                Probe::Exchange { bytes, .. } => bytes,
                Probe::Trickle { parts, .. } => {
                    assert!((2..=4).contains(&parts.len()));
                    parts.concat()
                }
                other => panic!("{other:?}"),
            };
            let text = String::from_utf8(bytes).unwrap();
            let lower = text.to_lowercase();
            assert!(lower.contains("get http://denied.test/") && lower.contains("allowed.test\r\n"));
            assert!(text.ends_with("\r\n\r\n"));
            seen.insert(text);
        }
        assert!(seen.len() > 50, "{}", seen.len());
    }

    #[test]
    fn a_name_is_spelled_in_many_ways() {
        let mut random = Rng::with_seed(7);
        let names: std::collections::BTreeSet<String> =
            (0..50).map(|_| respell("denied.test", &mut random)).collect();
        assert!(names.len() > 20);
        assert!(
            names
                .iter()
                .all(|name| name.trim_end_matches('.').eq_ignore_ascii_case("denied.test"))
        );
    }
}
