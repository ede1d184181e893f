# The guest (src/guest), the Linux program that ralph puts into sandboxes, for ralph on other systems. Linux builds of ralph
# make their own.
{
  lib,
  stdenv,
  rustc,
}: let
  inherit (lib) fileset;
  inherit (stdenv) hostPlatform;
in
  stdenv.mkDerivation {
    name = "ralph-guest";
    src = fileset.toSource {
      root = ../.;
      fileset = fileset.unions [../build.rs ../src/guest];
    };
    nativeBuildInputs = [rustc];
    buildInputs = lib.optional hostPlatform.isGnu stdenv.cc.libc.static;
    # The build script of ralph needs nothing but these variables, which cargo would set. The command line has the feature
    # `escapes`.
    buildPhase = ''
      runHook preBuild
      rustc --edition 2024 -C linker="$CC" -o build-script build.rs
      mkdir out
      OUT_DIR=$PWD/out RUSTC=rustc RUSTC_LINKER=$CC TARGET=${hostPlatform.rust.rustcTarget} \
        CARGO_CFG_TARGET_OS=linux CARGO_CFG_TARGET_ARCH=${hostPlatform.parsed.cpu.name} CARGO_FEATURE_ESCAPES=1 ./build-script
      runHook postBuild
    '';
    installPhase = ''
      runHook preInstall
      install out/guest "$out"
      runHook postInstall
    '';
    dontFixup = true;
    meta = {
      description = "The helper program that ralph puts into Linux sandboxes";
      license = with lib.licenses; [mit asl20];
      platforms = lib.platforms.linux;
    };
  }
