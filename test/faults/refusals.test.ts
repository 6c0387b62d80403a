import t from 'tap'
import { strikeEach } from './strikes.js'

t.setTimeout(120_000)

t.test('200, 412 or 503 with a true outcome when the database refuses work, and recovery in time', t =>
  strikeEach(t, ['read_only', 'pool_exhausted', 'lock_timeout', 'deadlock', 'serialization_failure']),
)

// A full file system has to be one of its own, which takes root and the right to mount.
const isRoot = process.geteuid?.() === 0

t.test('503 not_applied when the disk is full, and recovery in time', { skip: !isRoot && 'only root can mount' }, t =>
  strikeEach(t, ['disk_full'], { tablesMib: 256 }),
)
