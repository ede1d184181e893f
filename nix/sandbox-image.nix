# `lib.mkSandboxImage`: the image that a sandbox starts from, with a project's own tools.
#
#   pkgs          the Nix packages of the image's system, which is Linux
#   agent         whose command line it carries: claude, codex, cursor or actions
#   packages      what the project needs besides
#   fromDevShell  a development shell whose tools, libraries and variables the image gets
#
# Where two packages hold a file of the same name, yours win. The result streams the image (`result | docker load`); its
# `tarball` is the same as one file (`docker load < result`).
{
  pkgs,
  agent ? "claude",
  packages ? [],
  fromDevShell ? null,
}: let
  inherit (pkgs) lib;
  users = import ./users.nix {inherit pkgs;};
  shell = import ./devshell-contents.nix {inherit pkgs;} fromDevShell;
  agents = import ./agents.nix {inherit pkgs;};

  # Whether this version of the packages still has it, and its licence is accepted.
  isUsable = name: let
    asked = builtins.tryEval (pkgs.${name}.meta.available or false);
  in
    asked.success && asked.value;

  everywhere = with pkgs; [
    bashInteractive
    coreutils
    diffutils
    findutils
    gawk
    gnugrep
    gnused
    gnutar
    gzip
    less
    patch
    procps
    unzip
    which
    xz

    cacert
    curl
    dnsutils
    gnupg
    iptables
    lsb-release
    openssh

    fd
    git
    jq
    ripgrep

    pnpm
    (
      if isUsable "nodejs_20"
      then nodejs_20
      else nodejs
    )
    (python3.withPackages (python: [python.pip python.virtualenv]))
    uv

    cargo
    clippy
    rustc
    rustfmt
    stdenv.cc
    gnumake
  ];

  variables =
    {
      HOME = users.home;
      LANG = "C.UTF-8";
      # What `npm install --global` and `pip install --user` bring stays writable, and is found.
      NPM_CONFIG_PREFIX = "${users.home}/.local";
      PATH = "${users.home}/.local/bin:/usr/local/bin:/usr/bin:/bin";
      SSL_CERT_FILE = "/etc/ssl/certs/ca-bundle.crt";
      USER = users.name;
    }
    // shell.variables;

  image = {
    name = "agent-loop-sandbox-${agent}";
    # No tag: it is made from the content.
    maxLayers = 100;
    contents =
      packages
      ++ shell.packages
      ++ agents.${agent} isUsable
      ++ everywhere
      ++ [pkgs.dockerTools.binSh pkgs.dockerTools.usrBinEnv users.files];
    fakeRootCommands = users.commands;
    config = {
      Cmd = ["/bin/bash"];
      User = users.name;
      WorkingDir = users.workspace;
      Env = lib.mapAttrsToList (name: value: "${name}=${value}") variables;
      Labels."dev.ralph.agent" = agent;
    };
  };
in
  assert lib.assertMsg pkgs.stdenv.hostPlatform.isLinux
  "mkSandboxImage: an image is Linux; give it `nixpkgs.legacyPackages.x86_64-linux` or `.aarch64-linux`";
  assert lib.assertOneOf "mkSandboxImage: agent" agent (lib.attrNames agents);
    lib.extendDerivation true {tarball = pkgs.dockerTools.buildLayeredImage image;}
    (pkgs.dockerTools.streamLayeredImage image)
