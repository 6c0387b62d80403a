import t from 'tap'
import { canMount } from './cluster.js'
import { FAULTS } from './faults.js'
import { strikeEach } from './strikes.js'

t.setTimeout(900_000) // half a minute of a quiet machine

t.test('200, 412 or 503 with a true outcome when the database refuses work, and recovery in time', t =>
  strikeEach(t, ['read_only', 'pool_exhausted', 'lock_timeout', 'deadlock', 'serialization_failure']),
)

// A full file system has to be one of its own.
const skip = !canMount() && 'file systems cannot be mounted here'

t.test('503 not_applied when the disk is full, and recovery in time', { skip }, t =>
  strikeEach(t, ['disk_full'], { tablesMib: 256 }),
)

t.test('503 with a true outcome when the disk of the write-ahead log is full, and recovery in time', { skip }, t =>
  strikeEach(t, ['wal_full'], FAULTS.wal_full?.cluster),
)
