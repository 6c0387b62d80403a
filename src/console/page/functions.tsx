import { h } from 'preact'
import { Chips, Lines, Note, useLists } from './parts.js'
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

/** The functions that a model gets from a definition. */
export function Functions({ list }: { list: Function_[] }) {
  const some = `${counted(list.length, 'function')}${list.length > SHOWN ? `, the first ${SHOWN}:` : '.'}`
  const linesOf = ({ parameters: { properties = {}, required = [] } }: Function_) =>
    Object.entries(properties).map(([name, { type, description }]) => {
      return `${name}: ${[type, required.includes(name) && 'required', description].filter(Boolean).join(', ')}`
    })
  return (
    <section>
      <h2>What a model gets</h2>
      <Note text={list.length > 0 ? some : 'Functions appear here once the definition has no faults.'} />
      {list.slice(0, SHOWN).map(each => (
        <details class="function">
          <summary>{h('strong', {}, visible(each.name))}</summary>
          <Note text={`${each.method.toUpperCase()} ${each.path}`} />
          <p>{visible(each.description)}</p>
          <Lines lines={linesOf(each)} />
        </details>
      ))}
    </section>
  )
}

/** The agents that use a tool, and how a changed definition affects them. */
export function Agents({ impact: { changes, agents } }: { impact: ImpactReport }) {
  const { ids, others } = agents
  const [rows = []] = useLists(ids.length > 0, ['persona']).data ?? []
  const names = new Map(rows.map(({ id, name }) => [id, name]))
  const unseen = others > 0 ? `, ${others.toLocaleString('en')} of them not shown to this token` : ''
  const lines = changes.slice(0, SHOWN).map(({ operation, msg }) => (operation ? `${operation}: ${msg}` : msg))
  return (
    <section>
      <h2>{changes.length > 0 ? 'What changes, and for whom' : 'Used by'}</h2>
      <Lines class="changes" lines={lines} />
      <p class="use">{`${counted(ids.length + others, 'agent')}${unseen}.`}</p>
      <Chips
        noun="agent"
        rows={ids.map(id => ({ id }))}
        textOf={({ id }) => names.get(id) ?? `Agent ${id}`}
        hrefOf={({ id }) => `#/agents/${id}`}
      />
    </section>
  )
}
