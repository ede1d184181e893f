//! The filter of system calls of a sandbox, which holds where a network namespace does not: `AF_VSOCK` reaches the
//! hypervisor from any namespace.
//!
//! `seccomp.json` is derived from the default profile of `containers/common` (Apache-2.0, see `LICENSE-APACHE`), which is
//! derived from that of Docker. It was changed: what needs a capability is left out, because sandboxes have none; sockets
//! are allowed by family and protocol; `io_uring` and the 32-bit `socketcall` are refused. See ADR 0025.

use std::io;
use std::path::Path;

use super::install_file;
use crate::engine::SeccompProfile;

/// The profile. What it refuses on purpose fails with `ENOLINK`, which no kernel returns there: a missing kernel module is
/// not taken for the filter.
pub(super) const PROFILE: &str = include_str!("seccomp.json");
const FILE: &str = "seccomp.json";

/// Writes the profile into this directory, for engines that read it from a file.
pub(super) fn install(dir: &Path) -> io::Result<SeccompProfile> {
    Ok(SeccompProfile {
        json: PROFILE.to_owned(),
        file: install_file(dir, FILE, PROFILE)?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    const ENOLINK: u64 = 67;

    fn rules() -> Vec<Value> {
        let profile: Value = serde_json::from_str(PROFILE).unwrap();
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        profile["syscalls"].as_array().unwrap().clone()
    }

    fn names(rule: &Value) -> impl Iterator<Item = &str> {
        rule["names"].as_array().unwrap().iter().filter_map(Value::as_str)
    }

    fn is_allowed(rule: &Value) -> bool {
        rule["action"] == "SCMP_ACT_ALLOW"
    }

    #[test]
    fn sockets_are_allowed_by_family_and_protocol() {
        let mut allowed = BTreeSet::new();
        for rule in rules().iter().filter(|rule| names(rule).eq(["socket"])) {
            let args = rule["args"].as_array().unwrap();
            let value = |arg: &Value| (arg["index"].as_u64().unwrap(), arg["value"].as_u64().unwrap());
            if is_allowed(rule) {
                assert!(args.iter().all(|arg| arg["op"] == "SCMP_CMP_EQ"), "{rule}");
                allowed.insert(args.iter().map(value).collect::<Vec<_>>());
            }
        }
        let ip =
            [2, 10].map(|family| [0, 1, 6, 17, 58, 262].map(|protocol| vec![(0, family), (2, protocol)]));
        let mut expected: BTreeSet<_> = ip.into_iter().flatten().collect();
        expected.extend([vec![(0, 1)], vec![(0, 16), (2, 0)]]);
        assert_eq!(allowed, expected);
    }

    #[test]
    fn what_a_sandbox_does_not_need_is_not_allowed() {
        let rules = rules();
        let refused = "socketcall io_uring_setup io_uring_enter io_uring_register";
        for name in refused.split(' ') {
            let rule = rules
                .iter()
                .find(|rule| names(rule).any(|one| one == name))
                .unwrap();
            assert!(!is_allowed(rule) && rule["errnoRet"] == ENOLINK, "{rule}");
        }
        let absent = "mount umount2 setns unshare pivot_root open_by_handle_at bpf perf_event_open keyctl add_key \
            request_key userfaultfd kexec_load init_module finit_module kcmp pidfd_getfd process_madvise syslog";
        for name in absent.split_whitespace() {
            assert!(
                !rules.iter().any(|rule| names(rule).any(|one| one == name)),
                "{name}"
            );
        }
    }

    #[test]
    fn namespaces_are_not_created_by_clone() {
        let rules = rules();
        let of = |name: &str| -> Vec<&Value> {
            rules
                .iter()
                .filter(|rule| names(rule).any(|one| one == name))
                .collect()
        };
        let [clone] = of("clone")[..] else { panic!() };
        // All flags CLONE_NEW* that `clone` knows.
        assert_eq!(clone["args"][0]["value"], 0x7e02_0000);
        assert_eq!(clone["args"][0]["op"], "SCMP_CMP_MASKED_EQ");
        // A filter cannot see the flags of `clone3`. Without it, libraries use `clone`.
        let [clone3] = of("clone3")[..] else { panic!() };
        assert_eq!(clone3["errnoRet"], 38);
    }
}
