# The first two stages of nixpkgs' own `stdenv/native`, which takes compiler, shell and tools from /usr; the third
# would build xz and patchelf from sources.
nixpkgs: args: let
  native = import "${nixpkgs}/pkgs/stdenv/native" args;

  # As the native one, which nixpkgs no longer calls with all that its wrappers ask for.
  compilerOf = raw: let
    common = {
      inherit (args) lib;
      inherit (raw) stdenvNoCC;
      nativeTools = true;
      nativeLibc = true;
      nativePrefix = "/usr";
      runtimeShell = "/bin/bash";
      expand-response-params = "";
    };
    bintools = import "${nixpkgs}/pkgs/build-support/bintools-wrapper" (common // {name = "bintools";});
  in
    import "${nixpkgs}/pkgs/build-support/cc-wrapper" (common
      // {
        name = "cc-native";
        isGNU = true;
        inherit bintools;
        # On macOS the wrapper names it; packages for it are evaluated here, not built.
        cc =
          if raw.stdenvNoCC.hostPlatform.isDarwin
          then "/usr"
          else null;
      });

  # A native compiler has no `libc`, which packages ask for by `stdenv.cc.libc`. The linker of the root finds the
  # libraries, static ones too, by itself.
  libcOf = raw: let
    empty = raw.stdenv.mkDerivation {
      name = "libc-of-the-root";
      buildCommand = "mkdir -p $out/lib $out/include";
    };
  in
    empty
    // {
      static = empty;
      dev = empty;
    };
in [
  ({}: let
    raw = builtins.head native {};
  in
    raw // {cc = compilerOf raw // {libc = libcOf raw;};})
  (builtins.elemAt native 1)
]
