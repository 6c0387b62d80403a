import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { DEFINITION } from '../matrix-organisation.js'
import { FULL, fairService, peakResidentBytes, requireFairness } from './beside.js'
import { Callers } from './callers.js'
import { fairnessWorld, type Owner, owner } from './world.js'

const TOKENS = 10
const READS = 60
/** Together their answers of 4.9 MB leave less memory than an agent of 4.6 MB takes. */
const CURATORS = 13
const PEAK_BYTES_MAX = 300 * 2 ** 20
const WAITING_PEAK_BYTES_MAX = 260 * 2 ** 20
const SMALL_PEAK_BYTES_MAX = 240 * 2 ** 20
/** Connections with a small answer each; of one address no more than half of all may be open. */
const SMALL_READS = FULL ? 4_900 : 1_600

/** An answer of 98 kB, with as many characters as nothing is reserved for. */
const SMALL_TEXT = `update persona set system_prompt = repeat('\u6f22', 32000) where id = any($1)`
/** One character needs two bytes in V8, so each has them: of an answer just below what is weighed before it is made. */
const WIDE_TEXT = `update persona set system_prompt = '\u6f22' || repeat(chr(1), 43000) where id = any($1)`
/** An answer of 6 MB. */
const LARGE_TEXTS = `update persona set system_prompt = repeat(chr(1), 256000), task_prompt = repeat(chr(1), 256000),
    starter_messages = (select json_agg(json_build_object('name', n::text, 'message', repeat(chr(1), 10000)))
                        from generate_series(1, 50) n)
  where id = any($1)`

t.test('answers that nobody reads', async t => {
  const world = await fairnessWorld(t)
  const hostile: Owner[] = []
  for (let i = 0; i < TOKENS; i++) hostile.push(await owner(world.client, `alice+unread${i}@example.com`, []))
  const ids = hostile.map(({ agentId }) => agentId)
  const service = await fairService(t, world)
  const callers = new Callers(service.port)
  t.teardown(() => callers.close())

  t.test('hold as little where requests of many header fields wait behind them', async t => {
    const begin = 'GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\n\r\n'
    for (const fields of FULL ? [400, 60] : [60]) {
      const behind = `GET / HTTP/1.1\r\nHost: a\r\n${'abc:def\r\n'.repeat(fields)}\r\n`.repeat(14)
      const sockets = Array.from({ length: 250 }, () => {
        const socket = connect(service.port, '127.0.0.1').on('error', () => undefined)
        socket.write(begin + behind)
        return socket
      })
      await Promise.all(sockets.map(hasBegun))
      const peak = peakResidentBytes(service.pid)
      t.ok(peak < WAITING_PEAK_BYTES_MAX, `${fields} fields: ${Math.round(peak / 2 ** 20)} MiB resident at most`)
      for (const socket of sockets) socket.destroy()
    }
  })

  t.test('hold little where they are small, one for each connection; who has one only is not cut off', async t => {
    const { attacker: slow } = world
    const fresh = await fairService(t, world) // memory that others gave back would be taken first
    const own = new Callers(fresh.port)
    t.teardown(() => own.close())
    await world.client.query(SMALL_TEXT, [[...ids, slow.agentId]])
    const plain = await own.send('GET', `/persona/${slow.agentId}`, slow.token, '')
    t.equal(plain.status, 200)
    const readers = Array.from({ length: SMALL_READS }, (_, i) => hostile[i % TOKENS] as Owner)
    const { begun, bytes } = await readNarrowly(fresh.port, [slow, ...readers])
    t.equal(begun, 1 + SMALL_READS, 'each is answered')
    t.ok(bytes > 3 * 32_000, `the first is read to its end at last: ${bytes} bytes`)
    const peak = peakResidentBytes(fresh.pid)
    t.ok(peak < SMALL_PEAK_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
    t.equal((await fresh.readiness()).status, 200)
    await readNoRefusals(fresh.port)
    t.equal((await fresh.readiness()).status, 200, 'behind refusals that no hook sees, none of them read')
  })

  t.test('hold no more memory than is shared out, however many there are', async t => {
    await world.client.query(WIDE_TEXT, [ids])
    const sockets = hostile.flatMap(one => Array.from({ length: READS }, () => unread(service.port, one)))
    const begun = await Promise.all(sockets.map(hasBegun))
    t.ok(begun.every(Boolean), 'each is answered or refused')
    const peak = peakResidentBytes(service.pid)
    t.ok(peak < PEAK_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
    for (const socket of sockets) socket.destroy()
  })

  t.test('make room where others read', async t => {
    const reader = world.attacker
    await world.client.query(LARGE_TEXTS, [[...ids, reader.agentId]])
    const read = async () => (await callers.send('GET', `/persona/${reader.agentId}`, reader.token, '')).status
    t.equal(await read(), 200, 'without them')
    const sockets: Socket[] = []
    for (let i = 0; i < 3; i++) {
      const next = hostile.map(one => unread(service.port, one))
      await Promise.all(next.map(hasBegun))
      sockets.push(...next)
    }
    await sleep(1_100) // so long a client has time
    for (let i = 0; i < 4; i++) t.equal(await read(), 200, 'beside them')
    const peak = peakResidentBytes(service.pid)
    t.ok(peak < PEAK_BYTES_MAX, `${Math.round(peak / 2 ** 20)} MiB resident at most`)
    for (const socket of sockets) socket.destroy()
  })

  t.test('make room where they are those of validations', async t => {
    const reader = world.attacker
    const read = async () => (await callers.send('GET', `/persona/${reader.agentId}`, reader.token, '')).status
    await world.client.query(LARGE_TEXTS.replace('50)', '26)'), [[reader.agentId]]) // 4.6 MB: who holds more has a second
    const curators: Owner[] = []
    for (let i = 0; i < CURATORS; i++) curators.push(await owner(world.client, `alice+curator${i}@example.com`, []))
    await world.client.query(
      `update user_account set permissions = '{basic,manage:actions}' where email like 'alice+curator%'`,
    )
    t.equal(await read(), 200, 'without them')
    const sockets: Socket[] = []
    const body = JSON.stringify({ definition: { ...DEFINITION, 'x-text': 'x'.repeat(4_900_000) } })
    for (const { token } of curators) {
      const socket = connect(service.port, '127.0.0.1').on('error', () => undefined)
      socket.write(
        `POST /admin/tool/custom/validate?complete=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n` +
          `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      )
      await hasBegun(socket)
      sockets.push(socket)
    }
    await sleep(1_100)
    t.equal(await read(), 200, 'beside them')
    for (const socket of sockets) socket.destroy()
  })

  // All that is asked for is real work for the machine: the comparison needs one that does nothing else.
  if (FULL) {
    t.test('beside quiet callers', async t => {
      await world.client.query(LARGE_TEXTS, [ids])
      await requireFairness(t, world, service, async over => {
        const sockets = hostile.flatMap(one => Array.from({ length: 2 * TOKENS }, () => unread(service.port, one)))
        while (!over.aborted) await sleep(20)
        for (const socket of sockets) socket.destroy()
      })
    })
  }
})

/** Asks for an agent, and reads no more than the beginning of the answer. */
function unread(port: number, { token, agentId }: Owner): Socket {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined)
  socket.write(`GET /persona/${agentId} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n\r\n`)
  return socket
}

/**
 * Connects one behind the other, asks for an agent each, and reads nothing but the first answer, at the end. The window of these
 * connections is so small that the system takes 40 kB of an answer, and not some MiB; Node sets no such option, so this is Perl.
 * Answers how many were answered 200, and the bytes of the answer that was read.
 */
async function readNarrowly(port: number, owners: readonly Owner[]): Promise<{ begun: number; bytes: number }> {
  const client = spawn('perl', ['-e', NARROW_READERS, String(port)], { stdio: ['pipe', 'pipe', 'inherit'] })
  const told = text(client.stdout)
  client.stdin.end(owners.map(({ token, agentId }) => `${token} ${agentId}\n`).join(''))
  const [code] = await once(client, 'close')
  if (code !== 0) throw new Error(`perl ended with ${code}`)
  return JSON.parse(await told)
}

/** At most 50 requests are in work at once, and each address has 2,400 connections at most. */
const NARROW_READERS = `
use strict; use warnings; use Socket;
$SIG{PIPE} = 'IGNORE';
my ($port) = @ARGV; my @sockets; my ($begun, $bytes) = (0, 0);
my $peek = sub { my $seen = ''; recv($_[0], $seen, 12, MSG_PEEK); $begun++ if $seen eq 'HTTP/1.1 200' };
while (my $line = <STDIN>) {
  my ($token, $id) = split ' ', $line;
  socket(my $socket, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
  setsockopt($socket, SOL_SOCKET, SO_RCVBUF, pack('l', 2048)) or die "window: $!";
  setsockopt($socket, 6, 2, pack('l', 536)) or die "segment: $!";
  setsockopt($socket, SOL_SOCKET, SO_RCVTIMEO, pack('l!l!', 30, 0)) or die "time: $!";
  bind($socket, sockaddr_in(0, inet_aton('127.0.2.' . (1 + int(@sockets / 2400))))) or die "bind: $!";
  connect($socket, sockaddr_in($port, INADDR_LOOPBACK)) or die "connect: $!";
  syswrite($socket, "GET /persona/$id HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\nAuthorization: Bearer $token\\r\\n\\r\\n");
  push @sockets, $socket;
  $peek->($sockets[-50]) if @sockets >= 50;
}
$peek->($_) for @sockets > 49 ? @sockets[-49 .. -1] : @sockets;
setsockopt($sockets[0], SOL_SOCKET, SO_RCVBUF, pack('l', 262144)) or die "window: $!";
while (my $count = sysread($sockets[0], my $part, 65536)) { $bytes += $count }
print qq({"begun":$begun,"bytes":$bytes});
`

/** From some narrow connections asks for an address that cannot be read, until the answers fill what the system takes, and reads nothing. */
async function readNoRefusals(port: number): Promise<void> {
  const client = spawn('perl', ['-e', NARROW_REFUSALS, String(port)], { stdio: 'inherit' })
  const [code] = await once(client, 'close')
  if (code !== 0) throw new Error(`perl ended with ${code}`)
}

/** 10 requests of each connection in one go: fewer than may wait on one. */
const NARROW_REFUSALS = `
use strict; use warnings; use Socket; use IO::Handle;
$SIG{PIPE} = 'IGNORE';
my @sockets;
for (1 .. 20) {
  socket(my $socket, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
  setsockopt($socket, SOL_SOCKET, SO_RCVBUF, pack('l', 2048)) or die "window: $!";
  setsockopt($socket, 6, 2, pack('l', 536)) or die "segment: $!";
  connect($socket, sockaddr_in($ARGV[0], INADDR_LOOPBACK)) or die "connect: $!";
  $socket->blocking(0);
  push @sockets, $socket;
}
for (1 .. 25) {
  syswrite($_, "GET /%zz HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n" x 10) for @sockets;
  select(undef, undef, undef, 0.1);
}
`

/** Whether an answer begins to come; then nothing of it is read any more. */
async function hasBegun(socket: Socket): Promise<boolean> {
  return await new Promise(resolve => {
    socket.once('data', () => {
      socket.pause()
      resolve(true)
    })
    socket.once('close', () => resolve(false))
  })
}
