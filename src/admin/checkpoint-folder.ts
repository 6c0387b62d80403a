import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Kysely } from 'kysely'
import type { Database } from '../db/tables.js'
import { growTree, readLeaves, readTree } from '../updates/audit-leaves.js'
import { HashTree } from '../updates/hash-tree.js'
import { type Checkpoint, readNote, type SigningKey, signedNote } from './checkpoint.js'
import { Refusal } from './refusal.js'

/** The database is not the one of a checkpoint in the folder: rewritten, or restored from a backup. Nothing is signed beside it. */
export class CheckpointRefuted extends Refusal {}

/** What became of one attempt. */
export interface Stored {
  /** The new file; undefined where the tree has not grown since the last one. */
  path: string | undefined
  /** Files of the folder that stand where a checkpoint should, and are none of this key. */
  unreadable: string[]
}

const FILE = /^checkpoint-(\d{12,15})(?:-\d+)?\.txt$/
/** So many files of one size are tried: of which all but the last are none of this key. */
const NAMES_MAX = 100

/**
 * The folder into which a service puts checkpoints as `checkpoint-000000001234.txt`. Files are made, never renamed, written over or
 * removed: a path that only takes new files is enough. Before it signs, the tree must still be the one of the newest checkpoint there.
 */
export class CheckpointFolder {
  /** The tree as it was found right the last time: only what came after it is read again. */
  #proved = new HashTree()

  constructor(
    readonly db: Kysely<Database>,
    readonly key: SigningKey,
    readonly folder: string,
  ) {}

  /**
   * Adds what is new to the tree, and puts a checkpoint of it into the folder. Throws `CheckpointRefuted`, and `Refusal` where the
   * folder is not there: it is not made, as it may be a mount.
   */
  async store(): Promise<Stored> {
    // First the folder: another instance may add to the tree and to the folder meanwhile.
    const { newest, unreadable } = this.#newest()
    await growTree(this.db)
    const tree = await readTree(this.db)
    await this.#prove(newest, tree)
    if (newest?.size === tree.size) return { path: undefined, unreadable }
    const note = signedNote({ size: tree.size, root: tree.root() }, this.key)
    return { path: this.#write(tree.size, note), unreadable }
  }

  #newest(): { newest: (Checkpoint & { name: string }) | undefined; unreadable: string[] } {
    const unreadable: string[] = []
    for (const name of this.#names()) {
      const checkpoint = this.#read(name)
      if (checkpoint !== undefined) return { newest: { ...checkpoint, name }, unreadable }
      unreadable.push(name)
    }
    return { newest: undefined, unreadable }
  }

  /** The names of the checkpoints, the largest tree first. */
  #names(): string[] {
    try {
      const names = readdirSync(this.folder).filter(name => FILE.test(name))
      return names.sort((a, b) => sizeOf(b) - sizeOf(a))
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException // what Node's file functions throw
      if (code !== 'ENOENT') throw error
      throw new Refusal(`the folder ${this.folder} is not there: mount it, or make it`)
    }
  }

  /** The checkpoint in a file; undefined for what is none that this key signed. */
  #read(name: string): Checkpoint | undefined {
    try {
      return readNote(readFileSync(join(this.folder, name), 'utf8'), this.key.verifier)
    } catch (error) {
      if (error instanceof Refusal) return undefined
      throw error
    }
  }

  async #prove(newest: (Checkpoint & { name: string }) | undefined, tree: HashTree): Promise<void> {
    if (newest === undefined) return
    const refuted = (why: string) =>
      new CheckpointRefuted(
        `the audit trail is not the one of ${join(this.folder, newest.name)}: ${why}. Keep that file, and run ` +
          `agentctl audit verify --checkpoint with it; after a restored backup move the checkpoints to another folder`,
      )
    if (newest.size > tree.size) throw refuted(`it had ${newest.size} rows and events, and there are ${tree.size}`)
    const { size, subtrees } = this.#proved
    const proved = size <= newest.size ? new HashTree(size, [...subtrees]) : new HashTree()
    const compare = () => {
      if (proved.size === newest.size && !proved.root().equals(newest.root)) throw refuted('they were others')
    }
    compare()
    for await (const { position, hash } of readLeaves(this.db, tree.size, proved.size)) {
      if (position !== proved.size) throw refuted('some are missing')
      proved.add(hash)
      compare()
    }
    if (proved.size !== tree.size || !proved.root().equals(tree.root()))
      throw refuted('the tree is not that of its leaves')
    this.#proved = proved
  }

  #write(size: number, note: string): string | undefined {
    const start = `checkpoint-${String(size).padStart(12, '0')}`
    for (let count = 1; count <= NAMES_MAX; count++) {
      const name = count === 1 ? `${start}.txt` : `${start}-${count}.txt`
      const path = join(this.folder, name)
      try {
        writeFileSync(path, note, { flag: 'wx' })
        return path
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException // what Node's file functions throw
        if (code !== 'EEXIST') throw error
        if (this.#read(name) !== undefined) return undefined // another instance was first; the next attempt compares
      }
    }
    throw new Refusal(
      `${join(this.folder, start)}*.txt are ${NAMES_MAX} files, and none is a checkpoint of ${this.key.name}`,
    )
  }
}

function sizeOf(name: string): number {
  return Number(FILE.exec(name)?.[1])
}
