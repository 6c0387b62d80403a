import type { Task } from './reader.js'

/* The way to the worker. Its address is the one thing that the page's policy lets a text become. */
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
  waiting.get(id)?.(answer as never) // of the task's kind
  waiting.delete(id)
})

/** Has the worker do a task, and answers what it found. */
export function inWorker<T>(task: Task): Promise<T> {
  return new Promise<T>(resolve => {
    const id = ++tasks
    waiting.set(id, resolve)
    worker.postMessage({ ...task, id })
  })
}
