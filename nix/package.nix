# The program `ralph`, built from this repository. Its version is that of Cargo.toml.
{
  lib,
  stdenv,
  rustPlatform,
  writeText,
  installShellFiles,
  git,
  # The profile of Cargo.toml that it is built with; `debug` is the fastest to compile.
  profile ? "dist",
  # A guest that was built elsewhere (guest.nix). Without it, only a build for Linux has one.
  guest ? null,
}: let
  inherit (lib) fileset;
  cargo = lib.importTOML ../Cargo.toml;
  manifest = cargo.package;

  # What the program and its dependencies have in common.
  common = {
    inherit (manifest) version;
    cargoLock.lockFile = ../Cargo.lock;
    buildType = profile;
    # The other suites need the whole repository: see tests/run.
    cargoTestFlags = ["--lib"];
    # The guest (src/guest) is linked statically.
    buildInputs = lib.optional stdenv.hostPlatform.isGnu stdenv.cc.libc.static;
  };

  # What of Cargo.toml decides how dependencies are compiled.
  dependencyManifest =
    removeAttrs cargo ["bench" "lints" "test"]
    // {package = lib.getAttrs ["name" "version" "edition"] manifest;};
  # Every table becomes an inline one; the other values are written as in JSON.
  toAssignment = name: value: "${builtins.toJSON name} = ${toTOML value}";
  toTOML = value:
    if lib.isAttrs value
    then "{ ${lib.concatStringsSep ", " (lib.mapAttrsToList toAssignment value)} }"
    else if lib.isList value
    then "[${lib.concatMapStringsSep ", " toTOML value}]"
    else builtins.toJSON value;

  # All dependencies, compiled: built again only if they change.
  dependencies = rustPlatform.buildRustPackage (common
    // {
      pname = "${manifest.name}-dependencies";
      src = fileset.toSource {
        root = ../.;
        fileset = fileset.unions [
          ../Cargo.lock
          ../tests/support/Cargo.toml
        ];
      };
      # Cargo compiles the dependencies of an empty program too.
      postPatch = ''
        cp ${writeText "Cargo.toml" (lib.concatLines (lib.mapAttrsToList toAssignment dependencyManifest))} Cargo.toml
        mkdir src
        touch src/lib.rs tests/support/mod.rs
        echo 'fn main() {}' | tee src/main.rs >build.rs
      '';
      # Files in the store have no time of their own, so cargo would take what was built of the empty program for the
      # real one.
      installPhase = ''
        runHook preInstall
        find target \( -name 'ralph*' -o -name 'libralph*' -o -name incremental \) -prune -exec rm -rf {} +
        mkdir "$out"
        mv target "$out"
        runHook postInstall
      '';
      dontFixup = true;
    });
in
  rustPlatform.buildRustPackage (common
    // lib.optionalAttrs (guest != null) {RALPH_GUEST = guest;}
    // {
      pname = manifest.name;

      # What the build and its tests read and nothing else, so that a change to a document does not build again.
      src = fileset.toSource {
        root = ../.;
        fileset = fileset.unions [
          ../Cargo.toml
          ../Cargo.lock
          ../build.rs
          ../src
          ../templates
          ../docs/reference/image-hash.md
          ../fuzz/corpus
          ../tests/fixtures/agents
          ../tests/fixtures/litellm
          ../tests/fixtures/state
          ../tests/support
        ];
      };
      # Cargo builds again what is older than its sources, and these were just unpacked.
      preBuild = ''
        cp -r ${dependencies}/target .
        chmod -R u+w target
        find target -exec touch -r "$(mktemp)" {} +
      '';
      nativeCheckInputs = [git];

      nativeBuildInputs = [installShellFiles];
      postInstall = lib.optionalString (stdenv.buildPlatform.canExecute stdenv.hostPlatform) ''
        for shell in bash fish zsh; do
          "$out/bin/ralph" completions "$shell" >"ralph.$shell"
        done
        installShellCompletion ralph.{bash,fish,zsh}
        "$out/bin/ralph" man --dir man
        installManPage man/*.1
      '';

      passthru = {inherit dependencies;};
      meta = {
        inherit (manifest) description;
        license = with lib.licenses; [mit asl20];
        mainProgram = "ralph";
      };
    })
