{
  description = "Runs coding agents unattended, in a loop, inside a sandbox, and hands back a pull request";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  # Only wires: what is built is in nix/.
  outputs = {
    self,
    nixpkgs,
  }: let
    inherit (nixpkgs) lib;
    systems = ["x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin"];
    forEachSystem = outputs: lib.genAttrs systems (system: outputs nixpkgs.legacyPackages.${system} self.packages.${system});
  in {
    packages = forEachSystem (pkgs: own: {
      ralph = pkgs.callPackage ./nix/package.nix {};
      default = own.ralph;
    });

    apps = forEachSystem (pkgs: own: {
      ralph = {
        type = "app";
        program = lib.getExe own.ralph;
        meta = {inherit (own.ralph.meta) description;};
      };
      default = self.apps.${pkgs.stdenv.hostPlatform.system}.ralph;
    });

    devShells = forEachSystem (pkgs: own: {
      default = pkgs.callPackage ./nix/devshell.nix {inherit (own) ralph;};
    });

    checks = forEachSystem (pkgs: own: {
      inherit (own) ralph;
      format = pkgs.callPackage ./nix/format.nix {};
    });

    formatter = forEachSystem (pkgs: own: pkgs.alejandra);
  };
}
