import { type Command, UsageError } from './command.js'
import { GROUP_ALIASES } from './program.js'

const SHELLS = ['bash', 'zsh', 'fish'] as const

/** The subcommand that prints what a shell needs to complete command lines: a list of what may follow what. */
export function completionCommand(commands: () => readonly Command[]): Command {
  return {
    name: 'completion',
    summary: 'Prints the completion for a shell: bash, zsh or fish.',
    positionals: ['SHELL'],
    options: {},
    details: [
      'bash: eval "$(agentctl completion bash)" in ~/.bashrc',
      'zsh:  eval "$(agentctl completion zsh)" in ~/.zshrc, after compinit',
      'fish: agentctl completion fish > ~/.config/fish/completions/agentctl.fish',
    ].join('\n'),
    offline: true,
    run: async call => {
      const shell = SHELLS.find(known => known === call.argument(0))
      if (shell === undefined) throw new UsageError(`SHELL is one of ${SHELLS.join(', ')}, not ${call.argument(0)}`)
      call.printExact(scriptOf(shell, followers(commands())))
    },
  }
}

/** What may follow each beginning of a command line: the next words, or the options. */
function followers(commands: readonly Command[]): Map<string, Set<string>> {
  const next = new Map<string, Set<string>>()
  const add = (before: string, word: string) => next.set(before, (next.get(before) ?? new Set()).add(word))
  add('', 'help')
  for (const { name, options } of commands.flatMap(command => [command, ...otherName(command)])) {
    const words = name.split(' ')
    for (const [index, word] of words.entries()) {
      const before = words.slice(0, index)
      add(before.join(' '), word)
      add(['help', ...before].join(' '), word)
    }
    for (const [option, { choices = [] }] of Object.entries(options)) {
      add(name, `--${option}`)
      for (const choice of choices) add(`${name} --${option}`, choice)
    }
    add(name, '--help')
  }
  return next
}

/** The command by the other word for its group. */
function otherName({ name, options }: Command): Pick<Command, 'name' | 'options'>[] {
  const [group = '', ...rest] = name.split(' ')
  const alias = GROUP_ALIASES[group]
  return alias === undefined ? [] : [{ name: [alias, ...rest].join(' '), options }]
}

function scriptOf(shell: (typeof SHELLS)[number], next: ReadonlyMap<string, ReadonlySet<string>>): string {
  const rows = [...next].map(([before, words]) => [before, [...words].sort().join(' ')] as const)
  if (shell === 'fish') {
    const lines = rows.map(([before, words]) => {
      const [, command, option] = /^(.*) --(\S+)$/.exec(before) ?? []
      if (option !== undefined)
        return `complete -c agentctl -n 'string match -q -- "${command} *" (__agentctl_words)" "' -l ${option} -x -a '${words}'`
      // Behind a whole command its arguments may stand, files too; where a word of a command must follow, nothing else can.
      return words.includes('--help')
        ? `complete -c agentctl -n 'string match -q -- "${before} *" (__agentctl_words)" "' -a '${words}'`
        : `complete -c agentctl -f -n 'test (__agentctl_words) = "${before}"' -a '${words}'`
    })
    return [FISH_WORDS, ...lines].join('\n')
  }
  const cases = rows.map(([before, words]) => `      "${before}") words="${words}" ;;`)
  const start = shell === 'zsh' ? ['autoload -U +X bashcompinit && bashcompinit'] : []
  return [...start, BASH_START, ...cases, BASH_END].join('\n')
}

/** The words that stand before the cursor, without options. */
const FISH_WORDS = `function __agentctl_words
  set -l words (commandline -opc)
  echo (string join ' ' (string match -v -- '-*' $words[2..-1]))
end`

const BASH_START = `_agentctl() {
  local word before="" option="" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    [[ "$word" == -* ]] || before="\${before:+$before }$word"
  done
  [[ "\${COMP_WORDS[COMP_CWORD-1]}" != --* ]] || option=" \${COMP_WORDS[COMP_CWORD-1]}"
  local all="$before"
  while :; do
    case "$before$option" in`

const BASH_END = `    esac
    [[ -z "$words" ]] || break
    if [[ "$before" == *" "* ]]; then before="\${before% *}"
    elif [[ -n "$option" ]]; then option="" before="$all"
    else break; fi
  done
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _agentctl agentctl`
