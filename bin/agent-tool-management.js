#!/usr/bin/env -S MALLOC_MMAP_THRESHOLD_=131072 MALLOC_ARENA_MAX=2 node --max-semi-space-size=4 --initial-old-space-size=64 --heap-growing-percent=30 --v8-pool-size=1
// What `npx` of the package runs: the service. The environment and the options are those of `npm start`.
await import('../build/src/server.js')
