# What of a development shell goes into an image: its tools and libraries, its own variables, and those by which
# compilers find its libraries. In a shell the last are set by hooks as it starts; nothing runs as a container starts.
# `shellHook` is left out: it is written for a person in a terminal.
{pkgs}: shell: let
  inherit (pkgs) lib;

  inputKinds = ["buildInputs" "nativeBuildInputs" "propagatedBuildInputs" "propagatedNativeBuildInputs"];
  inputs = lib.closePropagation (lib.filter lib.isDerivation (lib.concatMap (kind: shell.${kind} or []) inputKinds));
  # A library is listed by its headers; its programs and its code are outputs beside them.
  programsOf = input: input.bin or input.out or input;
  libraryOf = input: input.lib or input.out or input;
  compiler = lib.optional (shell.stdenv.hasCC or false) shell.stdenv.cc;

  # Whatever a shell without any content has is not the project's own.
  own = removeAttrs shell.drvAttrs (lib.attrNames (pkgs.mkShell {}).drvAttrs ++ ["env" "shellHook"]);
  isText = value:
    if lib.isList value
    then lib.all isText value
    else lib.isString value || lib.isPath value || lib.isInt value || lib.isBool value || lib.isDerivation value;
  ownVariables = lib.mapAttrs (_: toString) (lib.filterAttrs (_: isText) own);

  # The wrappers of compiler and pkg-config read the plain variables once they are told that those are theirs.
  salt = shell.stdenv.cc.suffixSalt;
  libraryVariables = lib.optionalAttrs (compiler != []) {
    PKG_CONFIG_PATH = lib.concatMapStringsSep ":" (dir: lib.makeSearchPathOutput "dev" dir inputs) ["lib/pkgconfig" "share/pkgconfig"];
    NIX_CFLAGS_COMPILE = lib.concatMapStringsSep " " (input: "-isystem ${lib.getDev input}/include") inputs;
    NIX_LDFLAGS = lib.concatMapStringsSep " " (input: "-L${libraryOf input}/lib") inputs;
    "NIX_CC_WRAPPER_TARGET_HOST_${salt}" = "1";
    "NIX_BINTOOLS_WRAPPER_TARGET_HOST_${salt}" = "1";
    "NIX_PKG_CONFIG_WRAPPER_TARGET_HOST_${salt}" = "1";
  };
in
  if shell == null
  then {
    packages = [];
    variables = {};
  }
  else {
    packages = lib.unique (map programsOf inputs ++ inputs ++ compiler);
    variables = libraryVariables // ownVariables;
  }
