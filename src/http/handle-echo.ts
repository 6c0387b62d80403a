import type { SendHandle } from 'node:child_process'

/* The program of a process that sends each handle back that it is sent: see `accept-often.ts`. It ends with its channel. */

process.on('message', (_message, handle) => {
  process.send?.({}, handle as SendHandle) // of the type that was sent
})
