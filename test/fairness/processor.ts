import { closeSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs'

/*
 * No comparison may depend on a machine that does nothing else. Where other work takes part of the processors, whoever is busy waits
 * for them several times as long as who mostly sleeps, so the quiet callers of an attacked service wait longer than those of the control,
 * whatever the service does. These tell whether there is other work, and what of a request's time was a wait for a processor.
 */

/** Of a thread, so far: how long it ran, and how long it waited for a processor, in ms. */
interface Times {
  ranMs: number
  waitedMs: number
}

/** The threads that an update passes: of its sender, of the service, and one or two of the backends. */
export interface Serving {
  service: number
  backends: readonly number[]
}

/** Tells what requests took without what the threads that served them waited for a processor. Made in the thread that sends. */
export class ProcessorTimes {
  readonly #sender = new ThreadTimes('/proc/thread-self/schedstat')
  readonly #service: ThreadTimes
  readonly #backends: ThreadTimes[]

  constructor({ service, backends }: Serving) {
    this.#service = new ThreadTimes(`/proc/${service}/task/${service}/schedstat`)
    this.#backends = backends.map(pid => new ThreadTimes(`/proc/${pid}/schedstat`))
  }

  /**
   * Answers a function that takes how long a request took since, and tells how long that was without the waits. Which backend served it
   * is not known: the one that waited most. Not every wait was one of this request, so it is no less than what the service ran meanwhile.
   */
  begin(): (durationMs: number) => number {
    const [sender, service, ...backends] = [this.#sender, this.#service, ...this.#backends].map(each => each.begin())
    return durationMs => {
      const { ranMs = 0, waitedMs = 0 } = service?.() ?? {}
      const inDatabaseMs = Math.max(0, ...backends.map(since => since().waitedMs))
      return Math.max(durationMs - (sender?.().waitedMs ?? 0) - waitedMs - inDatabaseMs, Math.min(durationMs, ranMs))
    }
  }

  close(): void {
    for (const each of [this.#sender, this.#service, ...this.#backends]) each.close()
  }
}

/** What the kernel says of a thread; nothing of one that has ended, or elsewhere than on Linux. */
class ThreadTimes {
  readonly #text = Buffer.alloc(100)
  readonly #file: number | undefined
  #last: Times = { ranMs: 0, waitedMs: 0 }

  constructor(path: string) {
    try {
      this.#file = openSync(path, 'r')
    } catch {
      this.#file = undefined
    }
  }

  /** Answers a function that tells its times since. */
  begin(): () => Times {
    const from = this.#now()
    return () => {
      const to = this.#now()
      return { ranMs: to.ranMs - from.ranMs, waitedMs: to.waitedMs - from.waitedMs }
    }
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file)
  }

  #now(): Times {
    if (this.#file === undefined) return this.#last
    try {
      const length = readSync(this.#file, this.#text, 0, this.#text.length, 0)
      const [ran, waited] = numbersOf(this.#text.toString('latin1', 0, length))
      this.#last = { ranMs: (ran ?? 0) / 1e6, waitedMs: (waited ?? 0) / 1e6 }
    } catch {} // it has ended
    return this.#last
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
