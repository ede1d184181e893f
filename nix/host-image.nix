# The image of a host of ralph: service, workers and dashboard. `docker load < result`, then `HOST_IMAGE=ralph:nix docker compose up
# --no-build` starts it (compose.yaml).
{
  dockerTools,
  cacert,
  coreutils,
  git,
  openssh,
  ralph,
}:
dockerTools.buildLayeredImage {
  name = "ralph";
  tag = "nix";
  contents = [ralph git openssh cacert coreutils dockerTools.binSh dockerTools.fakeNss];
  extraCommands = "mkdir -m 1777 tmp && mkdir -m 700 root";
  config = {
    Entrypoint = ["/bin/ralph"];
    Cmd = ["dashboard" "--no-open" "--listen" "0.0.0.0:8000"];
    Env = ["HOME=/root" "PATH=/bin" "SSL_CERT_FILE=/etc/ssl/certs/ca-bundle.crt"];
    ExposedPorts."8000/tcp" = {};
  };
}
