import { createRequire } from 'node:module'

/*
 * The runner of the tests hooks itself into every process that it or a test starts, to see which files it loads and how often each of
 * their blocks runs. That doubles what such a process takes of the processor, and only the coverage reads it. Without coverage test
 * files, services and commands start as an operator starts them. Loaded before every test file (.taprc), and by who starts one.
 */
interface OnSpawn {
  removeAllListeners(): void
  addListener(listener: (started: { env: NodeJS.ProcessEnv }) => void): void
}

if (process.env._TAPJS_PROCESSINFO_COVERAGE_ !== '1') {
  const onSpawn: OnSpawn = createRequire(import.meta.url)('process-on-spawn')
  onSpawn.removeAllListeners()
  onSpawn.addListener(started => {
    const { NODE_OPTIONS, ...env } = started.env
    const options = NODE_OPTIONS?.replace(/"--import=[^"]+@tapjs\/processinfo[^"]+"/g, '').trim()
    started.env = options ? { ...env, NODE_OPTIONS: options } : env
  })
}
