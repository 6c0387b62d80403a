#!/usr/bin/env node
// What `npx` of the package runs: the service.
await import('../build/src/server.js')
