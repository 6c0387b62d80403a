import { type ComponentChildren, render } from 'preact'
import { useErrorBoundary, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Agent } from './agent.js'
import { List } from './list.js'
import { Button, Dialog, Field, Problem, useAction, useUnsaved } from './parts.js'
import { Changes } from './past.js'
import { ProposalView } from './proposals.js'
import type { Me, Rights } from './service.js'
import { ask, changePerson, EVENTS, mayDrop, outcome, rightsOf, setToken, unsaved } from './service.js'
import { titled, visible } from './texts.js'
import { Tool } from './tool.js'

const NOTE = `Use a token that begins with pat_, sa_, ro_ or pp_. This page forgets the token when you reload or close the page.
  An operator creates tokens with "agentctl token create".`

function SignIn({ title, onSignedIn }: { title: string; onSignedIn: (me: Me) => void }) {
  const form = useRef<HTMLFormElement>(null)
  useLayoutEffect(() => form.current?.querySelector('input')?.focus(), [])
  const { problem, act } = useAction(async (event: Event) => {
    event.preventDefault()
    const token = String(new FormData(form.current ?? undefined).get('token')).trim()
    if (!/^[!-~]+$/.test(token)) throw 'The token contains a space or another invalid character: copy it again'
    setToken(token)
    onSignedIn((await ask<Me>('GET', 'me')).data)
  })
  return (
    <form class="signIn" onSubmit={act} ref={form}>
      <h1>{title}</h1>
      <Field label="Access token" type="password" name="token" required readOnly={false} />
      <p class="note">{NOTE}</p>
      <Button class="main" label="Sign in" />
      <Problem problem={problem} />
    </form>
  )
}

const VIEWS = { agents: Agent, tools: Tool, proposals: ProposalView }
/** Ids must be numbers, because they become parts of request paths. */
const ADDRESS = /^#\/(?:(agents|tools|proposals)(?:\/(\d+))?|changes)$/

function Main({ address, rights }: { address: string; rights: Rights }) {
  const [, view, number] = ADDRESS.exec(address) ?? []
  const { [view as 'agents']: Record } = VIEWS
  if (!view) return address === '#/changes' ? <Changes writes={rights.writes} /> : null
  return number ? <Record id={Number(number)} rights={rights} /> : <List view={view as 'agents'} rights={rights} />
}

function Head({ address, rights: { me, writes, proposes } }: { address: string; rights: Rights }) {
  return (
    <>
      <nav aria-label="Views">
        {['agents', 'tools', 'proposals', 'changes'].map(name => (
          <a href={`#/${name}`} aria-current={address.startsWith(`#/${name}`) ? 'page' : 'false'}>
            {titled(name)}
          </a>
        ))}
      </nav>
      <p>
        <bdi>{visible(me.user.email)}</bdi> {writes ? '' : proposes ? '(proposals only)' : '(read only)'}
      </p>
      <a href="console">Sign out</a>
    </>
  )
}

/** If a view fails, shows the error instead. Below the error, shows the unsaved text until the user opens another view. */
function Guard({ children }: { children: ComponentChildren }) {
  const [typed, setTyped] = useState('')
  const [fault, again] = useErrorBoundary(() => setTyped([...unsaved.values()].map(read => read()).join('\n')))
  useUnsaved('What you typed before the error', typed !== '', () => typed)
  return [
    fault ? <Problem problem={fault} again={again} /> : children,
    typed && <Field label="What you typed: copy it from here" rows={12} value={typed} />,
  ]
}

function App() {
  const [rights, setRights] = useState<Rights>()
  const [address, setAddress] = useState(location.hash)
  const [fault, setFault] = useState<unknown>()
  const [[isEnded, setEnded], [turn, setTurn]] = [useState(false), useState(0)]
  const now = useRef(address)
  const go = () => {
    const { hash } = location
    if (hash === now.current) return
    if (!mayDrop('Leave without saving?')) return history.replaceState(null, '', now.current)
    unsaved.clear()
    if (!ADDRESS.test(hash)) return location.replace('#/agents')
    now.current = hash
    if (outcome.address !== hash) Object.assign(outcome, { text: '', edits: {} })
    setFault(undefined)
    setAddress(hash)
  }
  useLayoutEffect(() => {
    addEventListener(EVENTS.stored, () => setTurn(before => before + 1))
    addEventListener(EVENTS.ended, () => setEnded(true))
    addEventListener('error', ({ error, message }) => setFault(error ?? new Error(message)))
    addEventListener('unhandledrejection', ({ reason }) => setFault(reason))
    addEventListener('hashchange', go)
  }, [])
  const signedIn = (me: Me) => {
    if (rights) changePerson(rights.me, me)
    setRights(rightsOf(me))
    setEnded(false)
    dispatchEvent(new Event(EVENTS.signedIn))
    if (!ADDRESS.test(location.hash)) location.replace('#/agents')
  }
  return (
    <>
      <header>
        <p class="brand">Agents and tools</p>
        {rights && <Head {...{ address, rights }} />}
      </header>
      <main>
        <Problem problem={fault} />
        <Guard key={`${turn} ${address}`}>
          {rights ? <Main {...{ address, rights }} /> : <SignIn title="Sign in" onSignedIn={signedIn} />}
        </Guard>
        {rights && isEnded && (
          <Dialog title="Your session has ended" onClose={() => setEnded(false)}>
            <SignIn title="Sign in again to continue where you were" onSignedIn={signedIn} />
          </Dialog>
        )}
      </main>
    </>
  )
}

render(<App />, document.getElementById('page') as HTMLElement)
