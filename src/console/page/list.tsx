import { useEffect, useState } from 'preact/hooks'
import { Button, Field, Tags, useLoad, View } from './parts.js'
import { type Rights, type Row, readList, type View as Views } from './service.js'
import { counted, titled, visible } from './texts.js'

const SHOWN = 100
export const tagsOf = (row: Partial<Row>): string[] =>
  Object.entries({
    default: row.is_default_persona,
    'open to everybody': row.is_public,
    'built in': row.builtin_persona || row.in_code_tool_id,
    MCP: row.mcp_server_id,
    hidden: row.is_visible === false,
    off: row.enabled === false,
  }).flatMap(([name, is]) => (is ? [name] : []))

/** Agents or tools: those that the token sees, and a search in them. */
export function List({ view, rights }: { view: Views; rights: Rights }) {
  const [{ rows, isAll }, setRows] = useState<{ rows: Row[]; isAll: boolean }>({ rows: [], isAll: false })
  const [words, setWords] = useState('')
  const [limit, setLimit] = useState(SHOWN)
  const loaded = useLoad(signal => readList(view, signal, (rows, isAll) => setRows({ rows, isAll })), view)
  useEffect(() => setLimit(SHOWN), [words])
  const parts = words.toLowerCase().split(/\s+/)
  const found = rows.filter(({ id, name, description, owner }) => {
    const text = `${id} ${name} ${description} ${owner?.email}`.toLowerCase()
    return parts.every(part => text.includes(part))
  })
  const count = `${counted(rows.length, view.slice(0, -1))}${isAll ? '' : ' so far'}`
  const none = `This token sees no ${view}: there are none, or they are private, or it is bound to others.`
  const some = found.length === rows.length ? count : `${found.length.toLocaleString('en')} of ${count}`
  return (
    <View title={titled(view)} loaded={loaded} state={isAll && rows.length === 0 ? none : some}>
      <search class="bar">
        <Field label="Search" type="search" value={words} onChange={setWords} placeholder="Name, owner, number" />
        {view === 'tools' && rights.makesTools && (
          <a class="button main" href="#/new">
            New tool
          </a>
        )}
      </search>
      <ul class="rows">
        {found.slice(0, limit).map(row => (
          <li key={row.id}>
            <span class="number">{row.id}</span>
            <span>
              <a href={`#/${view}/${row.id}`}>{visible(row.name) || '(no name)'}</a> <Tags names={tagsOf(row)} />
            </span>
            <span class="about">{visible(row.description)}</span>
            <bdi class="note">{visible(row.owner?.email ?? 'no owner')}</bdi>
          </li>
        ))}
      </ul>
      {found.length > limit && <Button label="Show more" onClick={() => setLimit(limit + SHOWN)} />}
    </View>
  )
}
