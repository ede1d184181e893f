{
  description = "A project whose development shell is also the sandbox its coding agents work in";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";
    # Where you have ralph from.
    ralph.url = "github:ralph/ralph";
    ralph.inputs.nixpkgs.follows = "nixpkgs";
  };

  outputs = {
    self,
    nixpkgs,
    ralph,
  }: let
    inherit (nixpkgs) lib;
    systems = ["x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin"];
    forEachSystem = outputs: lib.genAttrs systems (system: outputs nixpkgs.legacyPackages.${system});
    # Images are Linux; on a Mac they are built by a Linux builder.
    linuxOf = system: builtins.replaceStrings ["darwin"] ["linux"] system;
  in {
    devShells = forEachSystem (pkgs: {
      default = pkgs.mkShell {
        packages = [pkgs.just];
      };
    });

    packages = forEachSystem (pkgs: let
      linux = linuxOf pkgs.stdenv.hostPlatform.system;
    in {
      dockerImage = ralph.lib.mkSandboxImage {
        pkgs = nixpkgs.legacyPackages.${linux};
        agent = "claude";
        fromDevShell = self.devShells.${linux}.default;
      };
    });
  };
}
