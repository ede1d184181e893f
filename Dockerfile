# The image of a host of ralph: service, workers and dashboard. Sandboxes are containers of the engine whose socket it gets.
# `docker compose up` builds and starts it (compose.yaml).
ARG RUST_IMAGE=docker.io/library/rust:1.89-bookworm
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim
# The stage below, or an image that has the program as /program/ralph.
ARG PROGRAM_IMAGE=build

FROM ${RUST_IMAGE} AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked --bin ralph \
  && mkdir /program \
  && cp target/release/ralph /program/

FROM ${PROGRAM_IMAGE} AS program

FROM ${BASE_IMAGE}
RUN apt-get update \
  && apt-get install --yes --no-install-recommends ca-certificates git openssh-client \
  && rm -rf /var/lib/apt/lists/*
COPY --from=program /program/ralph /usr/local/bin/ralph
EXPOSE 8000
ENTRYPOINT ["ralph"]
CMD ["dashboard", "--no-open", "--listen", "0.0.0.0:8000"]
