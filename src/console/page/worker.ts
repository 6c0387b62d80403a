import type { Task } from './reader.js'

/* Access to the worker. Its address is the only text that the page's policy for trusted types accepts. */
interface Factory {
  createPolicy(name: string, rules: { createScriptURL(): string }): { createScriptURL(text: string): string }
}

const ADDRESS = 'console/reader.js'
const { trustedTypes } = window as { trustedTypes?: Factory }
const policy = trustedTypes?.createPolicy('worker', { createScriptURL: () => ADDRESS })
const worker = new Worker(policy?.createScriptURL('') ?? ADDRESS, { type: 'module' })
const waiting = new Map<number, (answer: never) => void>()
let tasks = 0
worker.addEventListener('message', ({ data: { id, answer } }) => {
  waiting.get(id)?.(answer as never) // its type is that of the task's answer
  waiting.delete(id)
})

/** Runs a task in the worker and returns the result. */
export function inWorker<T>(task: Task): Promise<T> {
  return new Promise<T>(resolve => {
    const id = ++tasks
    waiting.set(id, resolve)
    worker.postMessage({ ...task, id })
  })
}
