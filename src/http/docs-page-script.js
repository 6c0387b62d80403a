/* The script of the page at `/docs`; it runs in the browser. What is kept: the token, in this tab's session storage. */

const reference = document.getElementById('reference')
const field = document.getElementById('token')
const state = document.getElementById('token-state')
const KEY = 'token'

/** The token: in this tab's session storage, or, where the browser keeps nothing for a page, in this page alone. */
let token = null
try {
  token = sessionStorage.getItem(KEY)
} catch {}

function keep(next) {
  token = next
  try {
    if (next === null) sessionStorage.removeItem(KEY)
    else sessionStorage.setItem(KEY, next)
  } catch {}
}

/** Sends the token with every request to this service; the document itself needs none. */
function authorised(request) {
  const isOurs = new URL(request.url, location.href).origin === location.origin
  if (token !== null && isOurs && !request.loadSpec) request.headers.Authorization = `Bearer ${token}`
  return request
}

function showState(sentence) {
  state.textContent =
    sentence ?? (token !== null ? 'A token is set: requests carry it.' : 'No token yet: requests are answered 401.')
}

document.getElementById('access').addEventListener('submit', event => {
  event.preventDefault()
  // Pasted with or without the word that the header begins with.
  const pasted = field.value.trim().replace(/^(authorization: *)?bearer( +|$)/i, '')
  if (/^[\x21-\x7e]+$/.test(pasted)) {
    keep(pasted)
    field.value = ''
    showState()
  } else showState('That is not a token: it has no blanks and only letters, digits and signs.')
})

document.getElementById('forget').addEventListener('click', () => {
  keep(null)
  field.value = ''
  forgetRequests()
  showState()
})

const dark = matchMedia('(prefers-color-scheme: dark)')
const showScheme = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', showScheme)

/** Names what the library leaves without a name for who cannot see the page, and lets the keyboard reach what scrolls. */
function nameControls() {
  for (const row of reference.querySelectorAll('tr[data-param-name]')) {
    for (const control of row.querySelectorAll('input, select, textarea')) {
      control.setAttribute('aria-label', row.dataset.paramName)
    }
  }
  const names = [
    ['textarea.body-param__text', 'Request body'],
    ['.examples-select select', 'Example'],
    ['select', 'Media type'],
  ]
  for (const [selector, name] of names) {
    for (const control of reference.querySelectorAll(selector)) {
      if (!control.hasAttribute('aria-label')) control.setAttribute('aria-label', name)
    }
  }
  for (const [index, table] of reference.querySelectorAll('[role="region"]').entries()) {
    table.setAttribute('aria-label', `Answers ${index + 1}`)
  }
  for (const block of reference.querySelectorAll('pre:not(.version)')) block.tabIndex = 0
}

const nothing = () => () => null

/** A request that was sent stands there as a curl line, with its token. */
function forgetRequests() {
  const { specActions, specSelectors } = page.getSystem()
  for (const operation of specSelectors.operations()) {
    const place = [operation.get('path'), operation.get('method')]
    specActions.clearResponse(...place)
    specActions.clearRequest(...place)
  }
}

/** Fills in the parameters that belong to an example, and empties the others: its body alone would be another request. */
function withParameters(choose, { specActions, specSelectors }) {
  return chosen => {
    const operation = specSelectors.specJson().getIn(['paths', ...chosen.pathMethod])
    const example = ['requestBody', 'content', 'application/json', 'examples', chosen.name, 'x-parameters']
    const values = operation?.getIn(example)
    for (const parameter of values === undefined ? [] : operation.get('parameters')) {
      const [name, place] = [parameter.get('name'), parameter.get('in')]
      if (place === 'path') continue
      const value = values.get(name) ?? null
      specActions.changeParamByIdentity(chosen.pathMethod, parameter, value, false)
      specActions.updateEmptyParamInclusion(chosen.pathMethod, name, place, value === '')
    }
    return choose(chosen)
  }
}

/** JSON text on lines of its own, each number as it was written: `JSON.parse` would make 12345678901234568 of 12345678901234567. */
function indented(text) {
  let depth = 0
  const line = () => `\n${'  '.repeat(depth)}`
  return text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"|\s+|\{\s*\}|\[\s*\]|[{}[\],:]/g, token => {
    if (token === '{' || token === '[') {
      depth++
      return token + line()
    }
    if (token === '}' || token === ']') {
      depth--
      return line() + token
    }
    if (token === ',') return token + line()
    if (token === ':') return ': '
    return token.startsWith('"') ? token : token.replace(/\s+/g, '')
  })
}

/** The library shows JSON as it reads and writes it, with numbers rounded; any other text as it is. */
function withExactNumbers(Original, { React }) {
  return shown => {
    const isJson = /json/i.test(shown.contentType) && typeof shown.content === 'string'
    const exact = isJson ? { ...shown, contentType: 'application/x-shown', content: indented(shown.content) } : shown
    return React.createElement(Original, exact)
  }
}

/** Requests go where the page came from, below the path prefix of a proxy too. */
function besideThePage(update) {
  const url = new URL('.', location.href).href.replace(/\/$/, '')
  return document => update({ ...document, servers: [{ url }] })
}

showState()
document.getElementById('use').disabled = false // until here, a press would submit the form itself
showScheme()
new MutationObserver(nameControls).observe(reference, { childList: true, subtree: true })
const page = globalThis.SwaggerUIBundle({
  url: 'openapi.json',
  domNode: reference,
  tryItOutEnabled: true,
  displayRequestDuration: true,
  syntaxHighlight: { activated: false }, // its colours are too faint, and a long answer takes seconds to draw
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
  requestInterceptor: authorised,
  // The form above takes the token, and there is one server: this one.
  plugins: [
    {
      wrapComponents: {
        ServersContainer: nothing,
        authorizeBtn: nothing,
        authorizeOperationBtn: nothing,
        InfoUrl: nothing,
        responseBody: withExactNumbers,
      },
      statePlugins: {
        oas3: { wrapActions: { setActiveExamplesMember: withParameters } },
        spec: { wrapActions: { updateJsonSpec: besideThePage } },
      },
    },
  ],
})
