import { readdirSync, readFileSync } from 'node:fs'

/** How nice each thread of a process is: proc(5), the nineteenth field of its `stat`. Linux only. */
export function nicenesses(pid: number): Map<number, number> {
  const folder = `/proc/${pid}/task`
  return new Map(
    readdirSync(folder).map(thread => {
      const text = readFileSync(`${folder}/${thread}/stat`, 'utf8')
      return [Number(thread), Number(text.slice(text.lastIndexOf(')') + 2).split(' ')[16])]
    }),
  )
}
