# The server as a container image: a static binary, built here, on Alpine. It runs without root and keeps its
# sessions in the volume /data.
#
#   docker build -t rejoin .
#   docker run -p 8181:8181 -e REJOIN_API_KEY="$(openssl rand -hex 32)" -v rejoin:/data rejoin

FROM rust:1.95-alpine AS build
# hadolint ignore=DL3018
RUN apk add --no-cache binutils gcc make musl-dev
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked -p rejoin-cli && strip -o /rejoin target/release/rejoin

# Alpine has a shell, the certificates of public authorities, and `wget` for the health check. To run agents in Python
# or Node: FROM this image, `USER root`, `apk add python3`, `USER 10001`.
FROM alpine:3.22
RUN addgroup -S -g 10001 rejoin && adduser -S -D -u 10001 -G rejoin -h /data rejoin && chmod 700 /data
COPY --from=build /rejoin /usr/local/bin/rejoin
COPY packaging/docker/rejoin.toml /etc/rejoin/rejoin.toml
COPY LICENSE-MIT LICENSE-APACHE /usr/share/licenses/rejoin/
ENV REJOIN_CONFIG=/etc/rejoin/rejoin.toml
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8181
# Commits and replays may take a moment on a busy disk; three failures in a row count.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8181/readyz"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["rejoin"]
