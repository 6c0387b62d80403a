import { setTimeout as sleep } from 'node:timers/promises'

/** Waits until `holds` answers true. Throws after `timeoutMs`, which only a machine that hangs needs. */
export async function eventually(holds: () => boolean | Promise<boolean>, timeoutMs = 60_000): Promise<void> {
  const deadline = performance.now() + timeoutMs
  while (!(await holds())) {
    if (performance.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${holds}`)
    await sleep(10)
  }
}
