# What it takes to work on ralph: the pinned toolchain, `ralph` with its completions, and what tests/run and .ci/run need.
{
  mkShell,
  ralph,
  bash-completion,
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
    bash-completion
    cargo-deny
    clippy
    git
    python3
    ralph
    rust-analyzer
    rustfmt
    shellcheck
  ];
  # Shells look for completions in the data directories.
  shellHook = ''
    export XDG_DATA_DIRS="${ralph}/share:''${XDG_DATA_DIRS:-/usr/local/share:/usr/share}"
    if [[ $- == *i* && -n ''${BASH_VERSION:-} ]]; then
      source ${ralph}/share/bash-completion/completions/ralph.bash
    fi
  '';
}
