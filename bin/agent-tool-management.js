#!/usr/bin/env node
// Starts the service with `npx`.
await import('../build/src/server.js')
