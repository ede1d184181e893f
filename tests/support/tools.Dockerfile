# The Debian of `make-debian tools` with the Node of the agents' Dockerfiles, which `make-node` makes: /usr/local comes first.
FROM ralph-test-tools:trixie
COPY node-v24.11.0-linux-x64.tar.gz /tmp/node.tar.gz
RUN tar -xzf /tmp/node.tar.gz -C /usr/local --strip-components=1 --no-same-owner && rm /tmp/node.tar.gz
