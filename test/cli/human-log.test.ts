import t from 'tap'
import { humanLog } from '../../src/admin/human-log.js'
import { makeLogger } from '../../src/http/logging.js'

/** What a terminal is shown of lines that the service's own logger makes. */
function shown(): { log: ReturnType<typeof makeLogger>; text: () => string } {
  let text = ''
  const log = makeLogger('debug', humanLog({ write: line => (text += line) }))
  return { log, text: () => text.replaceAll(/^\S*\d\d:\d\d:\d\d\S*/gm, 'TIME') }
}

t.test('a line at a terminal: time, level, sentence, fields; an error below it', async t => {
  const { log, text } = shown()
  log.info({ operation: 'update_persona', status: 200 }, 'request answered')
  log.warn({ err: Object.assign(new Error('no way'), { stack: 'Error\n    at here' }) }, 'it failed')
  t.equal(
    text(),
    'TIME info  request answered  operation=update_persona status=200\n' +
      'TIME warn  it failed\n    Error: no way\n    at here\n',
  )
})

t.test('what other people wrote cannot move the cursor or forge a line', async t => {
  const { log, text } = shown()
  log.info({ client: 'a\nTIME info  forged\u001b[2J\u202e' }, 'request\u001b]0;title\u0007 answered')
  t.equal(text(), 'TIME info  request\\x1b]0;title\\x07 answered  client=a\\nTIME info  forged\\x1b[2J\\u202e\n')
})
