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
  # Shells look for completions in the data directories. Nix has set those of the packages; where nothing else was set
  # outside, the default would be lost.
  shellHook = ''
    case ":''${XDG_DATA_DIRS:-}:" in
      *:/usr/share:*) ;;
      *) export XDG_DATA_DIRS="''${XDG_DATA_DIRS:-${ralph}/share}:/usr/local/share:/usr/share" ;;
    esac
    if [[ $- == *i* && -n ''${BASH_VERSION:-} ]]; then
      source ${ralph}/share/bash-completion/completions/ralph.bash
    fi
  '';
}
