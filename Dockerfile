# Build: everything, compiled; then only what production needs. The compiler (a development dependency) and the embedded
# database (an optional one) are left out: the image works with an external PostgreSQL.
FROM docker.io/library/node:24-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-audit --no-fund --ignore-scripts
COPY tsconfig.json ./
COPY src ./src
COPY migrations ./migrations
RUN npx tsc -p tsconfig.json --sourceMap false && node src/console/bundle.js
RUN npm prune --omit=dev --omit=optional --ignore-scripts --no-audit --no-fund

FROM docker.io/library/node:24-bookworm-slim
# Fewer arenas of malloc give the memory of ended workers back.
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8080 DEMO=off MALLOC_MMAP_THRESHOLD_=524288
WORKDIR /app
COPY --from=build /app/package.json ./
COPY LICENSE ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/build ./build
COPY openapi/openapi.json ./openapi/
COPY ops/organisation.md ./ops/
COPY fixtures/organisation.yaml ./fixtures/
RUN printf '#!/bin/sh\nexec node /app/build/src/cli.js "$@"\n' > /usr/local/bin/agentctl && chmod 755 /usr/local/bin/agentctl
# By number, so that Kubernetes can see that it is not root.
USER 1000:1000
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s CMD ["node", "-e", "fetch(`http://127.0.0.1:${+process.env.METRICS_PORT || process.env.PORT}/healthz`).then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "--max-semi-space-size=16", "--initial-old-space-size=64", "--heap-growing-percent=80", "build/src/server.js"]
