import { h } from 'preact'
import { useState } from 'preact/hooks'
import { Check, Field, Note, Tags, useLoad, View } from './parts.js'
import { KINDS, type Rights, type Row, readAll, type View as Views } from './service.js'
import { counted, dated, titled, visible } from './texts.js'

const SHOWN = 200
export const tagsOf = (row: Partial<Row>): string[] =>
  Object.entries({
    default: row.is_default_persona,
    'open to everybody': row.is_public,
    'built in': row.builtin_persona || row.in_code_tool_id,
    MCP: row.mcp_server_id,
    hidden: row.is_visible === false,
    off: row.enabled === false,
  }).flatMap(([name, is]) => (is ? [name] : []))

interface RowsProps {
  view: string
  /** The headings of the cells. */
  heads: string[]
  rows: { id: number; name: string; tags: string[]; cells: string[] }[] | undefined
  /** The text to show if there are no rows. */
  none: string
}

/** Rows with ids and names that link to their views. */
export function Rows({ view, heads, rows = [], none }: RowsProps) {
  if (rows.length === 0) return <Note text={none} />
  return (
    <>
      <table class="rows">
        <thead>
          <tr>{['No.', 'Name', ...heads].map(text => h('th', { scope: 'col' }, text))}</tr>
        </thead>
        <tbody>
          {rows.slice(0, SHOWN).map(({ id, name, tags, cells }) => (
            <tr key={id}>
              <td>{id}</td>
              <td>
                <a href={`#/${view}/${id}`}>{visible(name) || '(no name)'}</a> <Tags names={tags} />
              </td>
              {cells.map(text => h('td', {}, visible(text)))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > SHOWN && <Note text={`The first ${SHOWN}. A search finds the others.`} />}
    </>
  )
}

/** The agents or tools that the token can see, with a search. */
export function List({ view, rights }: { view: Views; rights: Rights }) {
  const [{ rows, isAll }, setRows] = useState<{ rows: Row[]; isAll: boolean }>({ rows: [], isAll: false })
  const [words, setWords] = useState('')
  const [isDeleted, setDeleted] = useState(false)
  const show = (rows: Row[], isAll: boolean) => setRows({ rows, isAll })
  const query = isDeleted ? { deleted: 'true' } : {}
  const loaded = useLoad(signal => readAll([KINDS[view].path, query], signal, show), isDeleted)
  const parts = words.toLowerCase().split(/\s+/)
  const lines = rows.map(row => ({
    ...{ id: row.id, name: row.name, tags: tagsOf(row) },
    cells: [row.description, row.owner?.email ?? 'no owner', row.updated_at ? dated(row.updated_at) : ''],
  }))
  const found = lines.filter(({ id, name, cells }) => {
    const text = [id, name, ...cells].join(' ').toLowerCase()
    return parts.every(part => text.includes(part))
  })
  const noun = `${isDeleted ? 'deleted ' : ''}${view.slice(0, -1)}`
  const count = `${counted(rows.length, noun)}${isAll ? '' : ' so far'}`
  const isUnread = loaded.problem !== undefined && rows.length === 0
  const state = isUnread
    ? ''
    : found.length === rows.length
      ? count
      : `${found.length.toLocaleString('en')} of ${count}`
  const none = rows.length > 0 ? 'None has these words.' : `This token sees no ${noun}s.`
  return (
    <View title={titled(view)} {...{ loaded, state }}>
      <search class="bar">
        <Field label="Search" type="search" placeholder="Name, owner, number" value={words} onChange={setWords} />
        {view === 'agents' && <Check label="Deleted ones" checked={isDeleted} onChange={setDeleted} />}
        {view === 'tools' && rights.makesTools && h('a', { class: 'button main', href: '#/new' }, 'New tool')}
      </search>
      {(isAll || found.length > 0) && (
        <Rows heads={['Description', 'Owner', 'Last change']} {...{ view, rows: found, none }} />
      )}
    </View>
  )
}
