import { useEffect, useState } from 'preact/hooks'
import { Pair } from './agent.js'
import { Chips, Lines, Note } from './parts.js'
import { readList } from './service.js'
import { counted, visible } from './texts.js'

export interface Function_ {
  name: string
  description: string
  method: string
  path: string
  parameters: { properties?: Record<string, { type?: string; description?: string }>; required?: string[] }
}

export interface ImpactReport {
  changes: { operation: string; msg: string }[]
  agents: { ids: number[]; others: number }
}

const SHOWN = 100

/** What a model is given of a definition. */
export function Functions({ list }: { list: Function_[] }) {
  const argumentOf = ({ parameters: { properties = {}, required = [] } }: Function_) =>
    Object.entries(properties).map(([name, { type, description }]) => {
      const text = [type, required.includes(name) && 'required', description].filter(Boolean).join(', ')
      return <Pair title={name} text={text} />
    })
  const some =
    list.length > SHOWN
      ? `${counted(list.length, 'function')}, the first ${SHOWN}:`
      : `${counted(list.length, 'function')}.`
  return (
    <section>
      <h2>What a model gets</h2>
      <p class="note" id="size">
        {list.length > 0 ? some : 'Functions appear here once the definition has no faults.'}
      </p>
      {list.slice(0, SHOWN).map(each => (
        <details class="function">
          <summary>
            <strong>{visible(each.name)}</strong>
          </summary>
          <Note text={`${each.method.toUpperCase()} ${each.path}`} />
          <p>{visible(each.description)}</p>
          <dl>{argumentOf(each)}</dl>
        </details>
      ))}
    </section>
  )
}

/** The agents that use a tool, by name, and what a changed definition means for them. */
export function Agents({ impact: { changes, agents } }: { impact: ImpactReport }) {
  const [names, setNames] = useState(new Map<number, string>())
  const { ids, others } = agents
  const isAny = ids.length > 0
  useEffect(() => {
    const leaving = new AbortController()
    const show = (rows: { id: number; name: string }[]) => setNames(new Map(rows.map(({ id, name }) => [id, name])))
    if (isAny) readList('agents', leaving.signal, show).catch(() => {}) // then the numbers stay
    return () => leaving.abort()
  }, [isAny])
  const unseen = others > 0 ? `, ${others.toLocaleString('en')} of them not shown to this token` : ''
  const lines = changes.slice(0, SHOWN).map(({ operation, msg }) => (operation ? `${operation}: ${msg}` : msg))
  return (
    <section>
      <h2>{changes.length > 0 ? 'What changes, and for whom' : 'Used by'}</h2>
      <Lines id="changes" lines={lines} />
      <p id="use">{`${counted(ids.length + others, 'agent')}${unseen}.`}</p>
      <Chips rows={ids.map(id => ({ id, text: names.get(id) ?? `Agent ${id}`, href: `#/agents/${id}` }))} />
    </section>
  )
}
