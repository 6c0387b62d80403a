#!/usr/bin/env -S node --max-semi-space-size=4 --initial-old-space-size=40 --heap-growing-percent=30
// What `npx` of the package runs: the service. The options are those of `npm start`.
await import('../build/src/server.js')
