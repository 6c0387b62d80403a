import type { Task } from './reader.js'

/* Runs tasks in the worker. The page's policy for trusted types allows only the address of the worker's script. */
interface Factory {
  createPolicy(name: string, rules: { createScriptURL(): string }): { createScriptURL(text: string): string }
}

const ADDRESS = 'console/reader.js'
const { trustedTypes } = window as { trustedTypes?: Factory }
const policy = trustedTypes?.createPolicy('worker', { createScriptURL: () => ADDRESS })
const worker = new Worker(policy?.createScriptURL('') ?? ADDRESS, { type: 'module' })
const waiting = new Map<number, [(answer: never) => void, (problem: string) => void]>()
let tasks = 0
worker.addEventListener('message', ({ data: { id, answer } }) => {
  waiting.get(id)?.[0](answer as never) // the answer has the type that the task's caller expects
  waiting.delete(id)
})

let failure = ''
const FAILED = 'This page can no longer read definitions, so it cannot check them. Reload the page.'
worker.addEventListener('error', ({ message }) => {
  failure = `${FAILED} ${message ?? `${ADDRESS} could not be loaded.`}`
  for (const [, reject] of waiting.values()) reject(failure)
  waiting.clear()
})

/** Runs a task in the worker and returns the result. Rejects with a message if the worker has failed. */
export function inWorker<T>(task: Task): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    if (failure) return reject(failure)
    const id = ++tasks
    waiting.set(id, [resolve, reject])
    worker.postMessage({ ...task, id })
  })
}
