#!/usr/bin/env node
// The service, as started by `npx` with this package.
await import('../build/src/server.js')
