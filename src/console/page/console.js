/* The page for people. It adds no rules: each view shows what the service answers any program. The token is in memory alone. */
const [ROWS, TRIES] = [100, 10]
const MAX = { rows: 5_000, shown: 20_000, words: 100_000, differences: 1_000, fileBytes: 2 ** 24 } // texts in characters
const KINDS = { agents: ['persona', 'Agent', 'persona'], tools: ['tool', 'Tool', 'admin/tool/custom'] }
const ADDRESS = /^#\/(agents|tools)(\/\d+(\/(compare|restore)(\/\d+)+)?)?$/ // numbers alone: they become parts of requests
const $ = id => document.getElementById(id)
const box = $('box')
let [token, caller, timer] = ['', undefined, undefined]
let turn = new AbortController() // of what the page does now; what comes later ends it

/** What a reader cannot see, or what changes the order of the text around it, is shown by its number. */
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Default_Ignorable_Code_Point}\u2028-\u202e\u2066-\u2069\ufff9-\ufffb]/gu
const numbered = found => `[U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}]`
const visible = text => String(text ?? '').replace(UNSEEN, numbered)
const counted = (count, noun) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`
const titled = name => (name[0].toUpperCase() + name.slice(1)).replaceAll('_', ' ')
const nextPage = ({ headers }) => /<([^>]+)>; rel="next"/.exec(headers.get('link') ?? '')?.[1]
/** A copy of a template. `{name}` becomes a text, whatever a user wrote. A part with `data-if` needs that; one with `data-of` has rows. */
function filled(template, data) {
  const element = $(template).content.firstElementChild.cloneNode(true)
  const put = text => text.replace(/\{(\w+)\}/g, (_, name) => visible(data[name]))
  const nodes = document.createTreeWalker(element, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT)
  for (let node = element; node !== null; node = nodes.nextNode())
    for (const part of node.attributes ?? [node]) part.nodeValue = put(part.nodeValue)
  for (const part of element.querySelectorAll('[data-if]')) if (!data[part.dataset.if]) part.remove()
  for (const list of element.querySelectorAll('[data-of]')) fill(list, data[list.dataset.of])
  return element
}

/** Shows rows by the template that the list names, or that a row names with `as`. */
function fill(list, rows = [], each = list.dataset.each) {
  list.replaceChildren(...rows.map(row => filled(row.as ?? each, typeof row === 'object' ? row : { text: row })))
}

/** Shows values by the ids of their elements: rows, a text, or whether it is there. An element with an empty text is hidden. */
function tell(values) {
  for (const [id, value = ''] of Object.entries(values)) {
    if (Array.isArray(value)) fill($(id), value)
    else $(id).hidden = !value
    if (typeof value === 'string') $(id).textContent = visible(value)
  }
}

/** Keeps numbers as they are written, where the browser can: 1.0 is not 1. */
function exact(_, value, context) {
  const isOther = typeof value === 'number' && context?.source !== undefined && context.source !== String(value)
  return isOther && JSON.rawJSON ? JSON.rawJSON(context.source) : value
}

/** Sends a request. Throws `{ status, ...body }` for an answer that is not a success, or answers it as `problem`; 0 is no answer at all. */
async function ask(
  method,
  path,
  { body, text = body && JSON.stringify(body), headers, signal = turn.signal, known = [] } = {},
) {
  const sent = { authorization: `Bearer ${token}`, ...(text && { 'content-type': 'application/json' }), ...headers }
  const asked = fetch(path, { method, headers: sent, body: text, signal })
  const read = asked.then(async answer => [answer, await answer.text()])
  const [answer, received] = await read.catch(() => Promise.reject({ status: 0 }))
  const data = /^[[{]/.test(received) ? JSON.parse(received, exact) : {}
  const problem = { ...data, status: answer.status, retryS: Number(answer.headers.get('retry-after')) }
  if (known.includes(answer.status)) return { problem }
  if (!answer.ok) throw problem
  const warnings = [...(answer.headers.get('warning') ?? '').matchAll(/299 - "([^"]*)"/g)].map(([, said]) => said)
  return { data, warnings, headers: answer.headers }
}

/** Does what a view needs, and says why it cannot. What only reads ends with the view, and is tried again while the service is away. */
async function doing(work, isRead = true, tries = 0) {
  turn.abort()
  turn = new AbortController()
  const { signal } = turn
  const again = () => signal.aborted || doing(work, isRead, tries + 1)
  tell({ problem: [] })
  try {
    await work()
  } catch (problem) {
    if (problem instanceof Error) throw problem
    const { status, detail, changed = [], retryS } = problem
    if (isRead && signal.aborted) return
    if (status === 401) signIn(undefined)
    const isAway = status === 0 || status === 503
    const isTried = isAway && isRead && tries < TRIES
    if (isTried) setTimeout(again, 1_000 * Math.max(2 + tries, retryS || 0))
    const title = $(`status-${status}`)?.content.textContent ?? `The service refuses this (${status})`
    const said = Array.isArray(detail) ? detail.map(({ loc, msg }) => `${loc.join('.')}: ${msg}`) : [detail ?? '']
    const button = status === 412 ? 'Look again' : isAway || status === 429 ? 'Try again' : ''
    tell({ problem: [{ title, said: [...said, ...changed], isTried, retryS: isTried ? 0 : retryS, again: button }] })
    if (button) $('problem').querySelector('button').onclick = status === 412 ? route : again
  }
}

/** The address after # names the view, so that one can go back. It never has a token or a definition. */
function route() {
  const [, view = '', id, action, ...versions] = location.hash.split('/')
  turn.abort()
  tell({ problem: [] })
  if (caller === undefined) show('signIn', 'Sign in')
  else if (view === 'definition') show('definition', 'Check a definition')
  else if (!ADDRESS.test(location.hash)) location.replace('#/agents')
  else if (id === undefined) doing(() => openList(view))
  else if (action === undefined) doing(() => openOne(view, id))
  else doing(() => openPair(view, id, ...versions))
  if (!$('definition').hidden) scheduleCheck()
}
addEventListener('hashchange', route)
addEventListener('submit', event => event.preventDefault())

/** Shows an empty view, which `up` leads away from. */
function show(id, title, up = {}) {
  for (const section of document.querySelectorAll('main > section')) section.hidden = section.id !== id
  for (const view of $('views').children) view.ariaCurrent = location.hash.startsWith(view.hash) ? 'page' : 'false'
  for (const link of document.querySelectorAll('.up')) Object.assign(link, up)
  for (const list of document.querySelectorAll('main [data-each]')) list.replaceChildren()
  for (const part of document.querySelectorAll('.late')) part.hidden = true
  tell({ [`${id}Title`]: title })
  $(id).querySelector('.first').focus()
  document.title = `${visible(title)} - Agents and tools`
  scrollTo(0, 0)
}

/** The caller is signed in, or nobody. The text in the box stays: a token may end while somebody writes. */
function signIn(found) {
  ;[caller, token] = [found, found ? token : '']
  $('token').value = ''
  tell({ who: Boolean(found), views: Boolean(found), caller: found ? `${found.user.email} (${found.permission})` : '' })
  route()
}
$('token').form.onsubmit = () => {
  token = $('token').value.trim()
  doing(async () => signIn((await ask('GET', 'me')).data))
}

/** Reads a list page by page, and shows what has come. */
async function openList(view) {
  const rows = []
  $('search').value = ''
  show('list', titled(view))
  showRows(view, rows, 'Nothing is loaded yet.')
  for (let next = `?limit=${ROWS}`; next !== undefined; ) {
    const page = await ask('GET', KINDS[view][0] + next)
    rows.push(...page.data)
    next = rows.length < MAX.rows ? nextPage(page) : undefined
    showRows(view, rows, next ? ' so far' : nextPage(page) ? ', the first ones' : '')
  }
}

function showRows(view, all, state, limit = ROWS) {
  const words = $('search').value.toLowerCase().split(/\s+/)
  const textIn = ({ id, name, description, owner }) => `${id} ${name} ${description} ${owner?.email}`.toLowerCase()
  const found = all.filter(row => words.every(word => textIn(row).includes(word)))
  const rows = found.slice(0, limit).map(row => {
    const is = { isHidden: row.is_visible === false, isOff: row.enabled === false }
    return { ...row, ...is, view, title: row.name || '(no name)', by: row.owner?.email ?? 'no owner' }
  })
  const none = state || `This token sees no ${view}: there are none, or they are private, or it is bound to others.`
  const count = `${counted(all.length, view.slice(0, -1))}${state}`
  const some = found.length === all.length ? count : `${found.length.toLocaleString('en')} of ${count}`
  tell({ rows, found: all.length === 0 ? none : some, more: found.length > limit })
  $('more').onclick = () => showRows(view, all, state, limit + ROWS)
  $('search').oninput = () => showRows(view, all, state)
}

async function openOne(view, id, done = '') {
  const [kind, noun] = KINDS[view]
  show('one', `${noun} ${id}`, { href: `#/${view}`, textContent: titled(view) })
  const past = await ask('GET', `${kind}/${id}/history`, { known: [403, 404] })
  const { data = {}, headers } = await ask('GET', `${kind}/${id}`, { known: past.problem ? [] : [404] })
  const version = Number(/-(\d+)[".]/.exec(headers?.get('etag'))?.[1] ?? 0)
  const state = version ? `${noun} ${id}, version ${version}.` : 'It is deleted. To restore a version brings it back.'
  tell({ state: `${done} ${state}`, oneTitle: data.name || `${noun} ${id}`, copy: Boolean(data.definition) })
  tell({ fields: fieldsOf(data).map(fieldShown) })
  $('copy').onclick = () => {
    $('against').value = id
    setText(textOf('definition', data.definition))
    location.hash = '#/definition'
  }
  if (past.problem) tell({ pastNote: `Only those who may change it see its history. ${past.problem.detail}` })
  else showHistory(`${view}/${id}`, `${kind}/${id}/history`, version, past)
}

function showHistory(at_view, path, now, page, entries = []) {
  for (const [i, entry] of page.data.entries()) {
    const { version, action, at, actor } = entry
    const changes = entry.changes?.map(changeShown)
    const isKept = changes !== undefined && action !== 'deleted'
    const before = isKept && (page.data[i + 1]?.version ?? version - 1)
    const is = { isPast: isKept && version !== now, isOld: isKept && version !== now && now > 0, isPruned: !changes }
    const by = actor.email ?? `the operator (${actor.command})`
    entries.push({ ...entry, ...is, at_view, now, changes, before, by, when: new Date(at).toLocaleString() })
  }
  const pastNote = page.warnings.filter(text => !text.includes('Link names')).join(' ')
  tell({ entries, pastNote, older: nextPage(page) !== undefined })
  const more = async () => showHistory(at_view, path, now, await ask('GET', path + nextPage(page)), entries)
  $('older').onclick = () => doing(more)
}

function changeShown({ field, from, to }) {
  const [old, next] = [from, to].map(value => textOf(field, value)) // a long text is not answered
  return { title: titled(field), runs: runsOf(old, next, 30) }
}

/** The fields of a record as texts; of what it refers to, names and ids. */
const fieldsOf = ({ id: _, ...record }) =>
  Object.entries(record).map(([name, value]) => [name, textOf(name, value), value])
/** How a value is written is decided by its field: a user may store a definition of any form. */
const REFERENCES = /^(owner|users?|groups|tools?|document_sets?|labels?|oauth_config)(_ids?)?$/
const PARTS = /^(custom_headers|starter_messages)$/
const named = one => (one?.name ? `${one.name} (${one.id})` : (one?.email ?? one?.id ?? one))
const parted = row => Object.entries(row).map(([name, part]) => `${name}: ${part}`)

function textOf(name, value) {
  if (value === null || value === undefined) return ''
  if (typeof value === 'boolean') return value ? 'yes' : 'no'
  if (REFERENCES.test(name)) return [value].flat().map(named).join('\n')
  if (PARTS.test(name)) return value.flatMap(parted).join('\n')
  if (name === 'user_file_ids') return value.join('\n')
  return typeof value === 'object' ? JSON.stringify(value, null, 2) : String(value)
}

function fieldShown([name, text, value]) {
  if (name === 'tools' && text) return { title: titled(name), tools: value }
  const rest = text.length - MAX.shown
  const shown = text.slice(0, MAX.shown) + (rest > 0 ? `\n... ${counted(rest, 'character')} more` : '')
  const folds = { isEmpty: text === '', [text.length > 600 ? 'long' : 'text']: shown }
  return { title: titled(name), ...folds, size: counted(text.length, 'character') }
}

/** Two versions side by side; with one version, what is stored beside what restoring it would make. */
async function openPair(view, id, version, to) {
  const [kind, noun, root] = KINDS[view]
  const title = to === undefined ? `restore version ${version}` : `version ${version} and version ${to}`
  show('pair', `${noun} ${id}: ${title}`, { href: `#/${view}/${id}`, textContent: `${noun} ${id}` })
  tell({ versions: to !== undefined })
  if (to !== undefined) {
    for (const [part, value] of Object.entries({ from: version, to })) $(part).value = value
    const read = at => ask('GET', `${kind}/${id}?version=${encodeURIComponent(at)}`)
    const [before, after] = await Promise.all([read(version), read(to)])
    return showDifferences(before.data, after.data, `Version ${version}`, `Version ${to}`)
  }
  const now = await ask('GET', `${kind}/${id}`, { known: [404] }) // a deleted agent
  const seen = now.headers?.get('etag')
  const body = { version: Number(version) }
  const tried = await ask('POST', `${root}/${id}/restore?dry_run=true`, { body, headers: seen && { 'if-match': seen } })
  showDifferences(now.data ?? {}, tried.data, 'Now', `With version ${version} restored`)
  tell({ warnings: tried.warnings, restore: `Restore version ${version}` })
  // The key belongs to this view: a second attempt after a lost answer restores nothing twice.
  const key = [...crypto.getRandomValues(new Uint8Array(12))].join('-')
  const headers = { 'if-match': seen ?? tried.headers.get('etag'), 'idempotency-key': `"${key}"` }
  const restore = async () => {
    const mine = turn
    const { warnings } = await ask('POST', `${root}/${id}/restore`, { body, headers, signal: null }) // never broken off
    if (mine !== turn) return
    history.replaceState(null, '', `#/${view}/${id}`)
    await openOne(view, id, [`Version ${version} is restored.`, ...warnings].join(' '))
  }
  $('restore').onclick = () => doing(restore, false)
}
$('versions').onsubmit = () => {
  location.hash = `${location.hash.split('/', 3).join('/')}/compare/${$('from').value}/${$('to').value}`
}

function showDifferences(before, after, first, second) {
  const [old, next] = [before, after].map(record => new Map(fieldsOf(record)))
  const names = [...new Set([...old.keys(), ...next.keys()])]
  const changed = names.filter(name => (old.get(name) ?? '') !== (next.get(name) ?? ''))
  const differences = changed.map(name => {
    const runs = runsOf(old.get(name) ?? '', next.get(name) ?? '', 200)
    const [left, right] = ['ins', 'del'].map(other => runs.filter(({ as }) => as !== other))
    return { title: titled(name), first, second, left, right }
  })
  tell({ pairNote: `${changed.length} of ${counted(names.length, 'field')} differ.`, differences })
}

/** The differences, with `around` characters of what is the same on each side of them. */
function runsOf(before, after, around) {
  return differencesOf(before, after).map(({ as, text }) => {
    const kept = as === 'span' ? around : around * 50
    const gap = around < 100 ? ' ... ' : '\n...\n'
    return { as, text: text.length > 3 * kept ? text.slice(0, kept) + gap + text.slice(-kept) : text }
  })
}

/** The words that differ (Myers 1986), of long texts the lines, as runs of `span`, `del` and `ins`. What differs too much is replaced whole. */
function differencesOf(before, after) {
  const pattern = before.length + after.length > MAX.words ? /[^\n]*\n|[^\n]+/g : /\s*[\p{L}\p{N}_]+|\s+|./gsu
  const [a, b] = [before, after].map(text => text.match(pattern) ?? [])
  const ends = { 1: { i: 0 } } // by diagonal: how many words of `a` are done, and the way there
  for (let d = 0; d <= MAX.differences; d++) {
    for (let k = -d; k <= d; k += 2) {
      const isAdded = k === -d || (k !== d && ends[k - 1].i < ends[k + 1].i)
      const from = ends[isAdded ? k + 1 : k - 1]
      const start = isAdded ? from.i : from.i + 1
      let i = start
      while (i < a.length && i - k < b.length && a[i] === b[i - k]) i++
      ends[k] = { i, start, from, as: isAdded ? 'ins' : 'del', text: isAdded ? b[start - k - 1] : a[start - 1] }
      if (i >= a.length && i - k >= b.length) return runsTo(ends[k], a)
    }
  }
  return Object.entries({ del: before, ins: after }).map(([as, text]) => ({ as, text }))
}

function runsTo({ i, start, from, as, text }, words) {
  const runs = from.from ? runsTo(from, words) : []
  if (from.from && runs.at(-1)?.as === as) runs.at(-1).text += text
  else if (from.from) runs.push({ as, text })
  if (i > start) runs.push({ as: 'span', text: words.slice(start, i).join('') })
  return runs
}

/** Checks what is in the box soon: the longer it is, the later. */
function scheduleCheck() {
  turn.abort()
  clearTimeout(timer)
  $('editor').className = 'stale'
  timer = setTimeout(() => $('definition').hidden || doing(check), 300 + box.value.length / 10_000)
}
box.oninput = scheduleCheck
$('against').oninput = scheduleCheck
const setText = text => scheduleCheck(Object.assign(box, { value: text }))

/** Validates the text in the box, as JSON, by the route that programs use. Its numbers are sent as they are written. */
async function validated(more) {
  const tool = $('against').value.trim()
  const query = new URLSearchParams({ report: 'full', view: 'functions', ...(tool && { tool_id: tool }), ...more })
  const text = `{"definition":${box.value}}`
  const { data, warnings, problem } = await ask('POST', `admin/tool/custom/validate?${query}`, { text, known: [422] })
  const found = (kind, list) => list.map(({ loc, msg }) => ({ kind, msg, place: placeOf(loc) }))
  if (problem) return { notes: found('fault', problem.detail), functions: [], warnings: [] }
  return { ...data, notes: found('warning', data.warnings), warnings }
}

const placeOf = loc => loc.slice(2).join('.')

/** What keeps the text in the box from being JSON. */
function unreadable() {
  if (box.value.trim() === '') return 'Paste a definition, or drop a file on the box.'
  try {
    JSON.parse(box.value)
    return ''
  } catch ({ message }) {
    return `This is not JSON: ${message}`
  }
}

async function check() {
  const reason = unreadable()
  tell({ verdict: reason || 'Not checked yet.', notes: [], functions: [], size: '', impact: false, repairPanel: false })
  if (reason) return tell({ repair: false })
  const { notes, functions, impact, warnings } = await validated()
  const faults = notes.filter(({ kind }) => kind === 'fault').length
  tell({
    verdict: `${counted(faults, 'fault')}, ${counted(notes.length - faults, 'warning')}.`,
    notes,
    repair: faults > 0,
  })
  const shown = functions.slice(0, ROWS).map(each => ({ ...each, text: JSON.stringify(each.parameters, null, 2) }))
  tell({ functions: shown, size: functions.length > 0 ? `${counted(functions.length, 'function')}.` : '' })
  if (impact) showImpact(impact, warnings)
  $('editor').className = ''
}

function showImpact({ changes, agents: { ids, others } }, warnings) {
  const shown = changes.map(({ operation, msg }) => `${operation}: ${msg}`)
  const use = `${counted(ids.length + others, 'agent')} with the tool; this token sees ${ids.length}. ${warnings.join(' ')}`
  tell({ impact: true, changes: shown.length > 0 ? shown : ['A model would notice nothing.'], use })
  tell({ agents: ids.map(id => ({ id })) })
}

async function lookForRepair() {
  const server = $('server').value.trim()
  tell({ repairPanel: true, repairNote: 'Looking for a repair.', edits: [], left: [], useRepaired: false })
  $('repairTitle').focus()
  const { notes, completed } = await validated({ complete: true, ...(server && { server }) })
  if (!completed)
    return tell({ repairNote: 'No repair is known yet. Correct these by hand:', left: notes.map(({ msg }) => msg) })
  const shown = value => value && JSON.stringify(value, null, 2)
  const edits = completed.edits.map(({ op, loc, before, after, msg }) => {
    return { op, msg, place: placeOf(loc), before: shown(before), after: shown(after) }
  })
  tell({ repairNote: `${counted(edits.length, 'edit')}.`, edits, useRepaired: true })
  $('useRepaired').onclick = () => {
    box.select() // what is inserted so can be undone by keyboard; a long text would take seconds
    const repaired = JSON.stringify(completed.definition, null, 2)
    if (repaired.length > MAX.words || !document.execCommand('insertText', false, repaired)) setText(repaired)
  }
}
for (const button of ['repair', 'lookAgain']) $(button).onclick = () => doing(lookForRepair)

async function readFile(file) {
  if (file?.size > MAX.fileBytes) tell({ verdict: `${file.name} is larger than any definition.` })
  else if (file) setText(await file.text())
}
$('file').onchange = ({ target }) => readFile(target.files[0]).finally(() => Object.assign(target, { value: '' }))
box.ondragover = event => event.preventDefault()
box.ondrop = event => {
  if (event.dataTransfer.files.length > 0) event.preventDefault()
  readFile(event.dataTransfer.files[0])
}
route()
