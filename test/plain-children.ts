import { createRequire } from 'node:module'

/*
 * The runner of the tests hooks itself into every process that a test starts, to see which files it loads. That costs each
 * `agentctl` and each service more than half a second of the processor, and only the coverage reads it. Without coverage the
 * processes of the tests start as an operator starts them. Loaded before every test file (.taprc).
 */
if (process.env._TAPJS_PROCESSINFO_COVERAGE_ === '0') {
  const onSpawn: { removeAllListeners(): void } = createRequire(import.meta.url)('process-on-spawn')
  onSpawn.removeAllListeners()
}
