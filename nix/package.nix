# The program `ralph`, built from this repository. Its version is that of Cargo.toml.
{
  lib,
  stdenv,
  rustPlatform,
  installShellFiles,
  git,
}: let
  inherit (lib) fileset;
  manifest = (lib.importTOML ../Cargo.toml).package;
in
  rustPlatform.buildRustPackage {
    pname = manifest.name;
    inherit (manifest) version;

    # What the build reads and nothing else, so that a change to a document does not build again.
    src = fileset.toSource {
      root = ../.;
      fileset = fileset.unions [
        ../Cargo.toml
        ../Cargo.lock
        ../build.rs
        ../src
        ../tests/support
        (fileset.maybeMissing ../templates)
      ];
    };
    cargoLock.lockFile = ../Cargo.lock;
    buildType = "dist";

    # The other suites need the whole repository: see tests/run.
    cargoTestFlags = ["--lib"];
    nativeCheckInputs = [git];

    # The guest (src/guest) is linked statically.
    buildInputs = lib.optional stdenv.hostPlatform.isGnu stdenv.cc.libc.static;

    nativeBuildInputs = [installShellFiles];
    postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
      for shell in bash fish zsh; do
        "$out/bin/ralph" completions "$shell" >"ralph.$shell"
      done
      installShellCompletion ralph.{bash,fish,zsh}
      "$out/bin/ralph" man >ralph.1
      installManPage ralph.1
    '';

    meta = {
      inherit (manifest) description;
      license = with lib.licenses; [mit asl20];
      mainProgram = "ralph";
    };
  }
