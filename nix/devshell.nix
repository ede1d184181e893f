# What it takes to work on ralph: its toolchain, and what tests/run and .ci/run need.
{
  mkShell,
  ralph,
  cargo-deny,
  clippy,
  git,
  python3,
  rust-analyzer,
  rustfmt,
  shellcheck,
}:
mkShell {
  inputsFrom = [ralph];
  packages = [
    cargo-deny
    clippy
    git
    python3
    rust-analyzer
    rustfmt
    shellcheck
  ];
}
