/* Every migration by name. Names begin with a number, which determines the order. */

export * as '0015_read_scope' from './0015_read_scope.js'
export * as '0016_version_3' from './0016_version_3.js'
