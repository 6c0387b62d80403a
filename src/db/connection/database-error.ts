import type { DatabaseServer } from './database-server.js'

/**
 * What can go wrong between the service and its database beside the errors that the server itself reports (those are
 * `DatabaseError` of pg, told apart by SQLSTATE). Each is recognised by its class, never by the text of a message.
 */

/** The message of the innermost cause of an error: what to tell an operator. It may quote what the server was sent. */
export function rootCause(error: unknown): string {
  if (error instanceof Error && error.cause instanceof Error) return rootCause(error.cause)
  if (error instanceof AggregateError) return error.errors.map(rootCause).join('; ')
  return error instanceof Error ? error.message : String(error)
}

/** The connection failed or was lost, and it is certain that nothing of the statement or transaction was applied. */
export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost'

  constructor(options?: ErrorOptions) {
    super('the connection to the database was lost; nothing was applied', options)
  }
}

/**
 * The connection was lost when the transaction, or a writing statement outside one, may already have been committed.
 * Also thrown when the server committed but gave up waiting for its synchronous standby. Must never be repeated blindly;
 * `Database.settle` finds out what became of it.
 */
export class CommitUnknown extends Error {
  override readonly name = 'CommitUnknown'

  constructor(
    /** The name under which the server lists the connection. */
    readonly session: string,
    /** Where the commit was sent to; undefined when that server was never asked what it is. */
    readonly server: DatabaseServer | undefined,
    options?: ErrorOptions,
  ) {
    super('the commit was not confirmed; whether it was applied is unknown', options)
  }
}

/** All connections of the pool are taken and none came free in time. Nothing was sent. */
export class PoolExhausted extends Error {
  override readonly name = 'PoolExhausted'

  constructor(
    readonly waitMs: number,
    options?: ErrorOptions,
  ) {
    super(`no connection to the database came free in ${waitMs} ms`, options)
  }
}

/** Work waited too long to begin. Nothing was sent. */
export class QueueExhausted extends Error {
  override readonly name = 'QueueExhausted'

  /** `awaited`: what it waited for, in words for the client; `setting`: the one that ended the wait. */
  constructor(
    readonly awaited: string,
    readonly waitMs: number,
    readonly setting: string,
  ) {
    super(`waited ${waitMs} ms in vain for ${awaited}`)
  }
}

/** The pool is closed or closing. Nothing was sent. */
export class DatabaseClosed extends Error {
  override readonly name = 'DatabaseClosed'

  constructor(options?: ErrorOptions) {
    super('the connections to the database are closed', options)
  }
}

/** The server accepts connections but no writes: a standby, or a primary being demoted. Nothing was sent. */
export class ServerReadOnly extends Error {
  override readonly name = 'ServerReadOnly'

  constructor() {
    super('the database server accepts no writes')
  }
}

/** The server is not one that the service can work with: another engine, too old, of another encoding. Says what it is. */
export class ServerUnfit extends Error {
  override readonly name = 'ServerUnfit'
}
