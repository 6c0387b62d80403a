import { closeSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs'

/*
 * No comparison may depend on a machine that does nothing else. Where other work takes part of the processors, whoever is busy waits
 * for them several times as long as who mostly sleeps, so the quiet callers of an attacked service wait longer than those of the control,
 * whatever the service does. These tell whether there is other work, and what of a request's time was a wait for a processor.
 */

/** Of a process, or of one of its threads: what it waited for a processor, in ms. */
type Wait = () => number

/** The threads that an update passes: of its sender, of the service, and one or two of the backends. */
export interface Serving {
  service: number
  backends: readonly number[]
}

/** Tells what the threads that serve the quiet callers wait for a processor. Made in the thread that sends. */
export class ProcessorWaits {
  readonly #files: number[] = []
  readonly #passed: Wait[]
  readonly #backends: Wait[]

  constructor({ service, backends }: Serving) {
    const paths = ['/proc/thread-self/schedstat', `/proc/${service}/task/${service}/schedstat`]
    this.#passed = paths.flatMap(path => this.#open(path))
    this.#backends = backends.flatMap(pid => this.#open(`/proc/${pid}/schedstat`))
  }

  /** Answers a function that tells what was waited since. Which backend served a request is not known: it is the one that waited most. */
  begin(): () => number {
    const [passed, backends] = [this.#passed, this.#backends].map(waits => waits.map(wait => ({ wait, from: wait() })))
    return () =>
      (passed ?? []).reduce((sum, { wait, from }) => sum + wait() - from, 0) +
      (backends ?? []).reduce((most, { wait, from }) => Math.max(most, wait() - from), 0)
  }

  close(): void {
    for (const file of this.#files) closeSync(file)
  }

  #open(path: string): Wait[] {
    const text = Buffer.alloc(100)
    let last = 0
    try {
      const file = openSync(path, 'r')
      this.#files.push(file)
      return [
        () => {
          try {
            last = Number(text.toString('latin1', 0, readSync(file, text, 0, text.length, 0)).split(' ')[1]) / 1e6
          } catch {} // it has ended
          return last
        },
      ]
    } catch {
      return [] // it has ended, or this is not Linux
    }
  }
}

/** proc(5): processor times are in hundredths of a second. */
const MS_PER_TICK = 10

/**
 * The processor time that others took so far, in ms: all that this machine has, but for this process, those that it started and these
 * backends; of a virtual machine also what its host took away. 0 where it is not known.
 */
export function othersProcessorMs(backends: readonly number[]): number {
  try {
    const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = numbersOf(
      readFileSync('/proc/stat', 'latin1')
        .split('\n', 1)[0]
        ?.replace(/^cpu +/, '') ?? '',
    )
    const own = ownProcesses(backends).reduce((sum, ticks) => sum + ticks, 0)
    return (user + nice + system + irq + softirq + steal - own) * MS_PER_TICK
  } catch {
    return 0
  }
}

/** The processor time of each process of ours, in ticks, with that of the children for which it has waited. */
function ownProcesses(backends: readonly number[]): number[] {
  const own = new Set([process.pid, ...backends])
  const found = readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .flatMap(name => {
      const text = textOf(`/proc/${name}/stat`)
      // Behind the name of the program, which may hold anything.
      const fields = numbersOf(text.slice(text.lastIndexOf(')') + 4))
      const [parent = 0] = fields
      return text === '' ? [] : [{ pid: Number(name), parent, ticks: sum(fields.slice(10, 14)) }]
    })
  for (let before = 0; before < own.size; ) {
    before = own.size
    for (const { pid, parent } of found) if (own.has(parent)) own.add(pid)
  }
  return found.filter(({ pid }) => own.has(pid)).map(({ ticks }) => ticks)
}

/** What a process was started as, or says that it is; empty where it has ended. */
export function commandLineOf(pid: number): string {
  return textOf(`/proc/${pid}/cmdline`)
}

function numbersOf(text: string): number[] {
  return text.split(' ').map(Number)
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0)
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return ''
  }
}
