# The image with traces (observability.md):
#   docker build --file ops/tracing.Dockerfile --tag agent-tool-management:3.0.0-tracing ops
# The chart takes it by `image.tag`, the OTEL_ variables by `settings`, and the way to the collector by `networkPolicy.egress`.
FROM agent-tool-management:3.0.0
USER root
RUN npm install --prefix /opt/tracing --no-audit --no-fund @opentelemetry/auto-instrumentations-node@0.81.2 @fastify/otel@0.21.2
COPY tracing.mjs /opt/tracing/
USER 1000:1000
CMD ["node", "--max-semi-space-size=16", "--initial-old-space-size=64", "--heap-growing-percent=80", "--import=/opt/tracing/tracing.mjs", "build/src/server.js"]
