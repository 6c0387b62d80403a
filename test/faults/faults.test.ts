import t from 'tap'
import { strikeEach } from './strikes.js'

t.setTimeout(900_000) // half a minute of a quiet machine

t.test('200, 412 or 503 with a true outcome when connections, server or service fail, and recovery in time', t =>
  strikeEach(t, ['connections_killed', 'server_restarted', 'backend_crashed', 'service_killed', 'server_hung']),
)
