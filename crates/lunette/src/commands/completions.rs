//! `lunette completions`: what completes the command in a shell, objects of the running server among them.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

/// Asks the server for the objects that a word may become, where `lunette ctl` takes one; `kick` and `jobs` take
/// the number of one. Bash breaks words at colons, which names have, and wants what is behind the last one.
const BASH: &str = r#"
_lunette_objects() {
    local line="${COMP_LINE:0:COMP_POINT}" pattern=' ctl (.* )?(ls|show|add|set|replace|rm|resize|kick|scrub|jobs) '
    local word="${line##* }" of="" found one
    if [[ "$line" =~ $pattern && "$word" != -* ]]; then
        case "${BASH_REMATCH[2]}" in kick) of="sessions/" ;; jobs) of="jobs/" ;; esac
        found="$("$1" ctl complete -- "$of$word" 2>/dev/null)"
        if [[ -n "$found" ]]; then
            local before="$of"
            [[ "$COMP_WORDBREAKS" == *:* ]] && before="$of${word%"${word##*:}"}"
            COMPREPLY=()
            while read -r one; do COMPREPLY+=("${one#"$before"}"); done <<< "$found"
            compopt -o nospace 2>/dev/null
            return 0
        fi
    fi
    _lunette "$@"
}
complete -F _lunette_objects -o bashdefault -o default lunette
"#;

/// Stands before what clap generates for zsh, which is a function of its own then.
const ZSH: &str = r#"
_lunette() {
    local of=""
    local -a found verbs
    verbs=(${(M)words[3,CURRENT-1]:#(ls|show|add|set|replace|rm|resize|kick|scrub|jobs)})
    if [[ "${words[2]}" == ctl && ${#verbs} -gt 0 && "$PREFIX" != -* ]]; then
        case "${verbs[1]}" in kick) of="sessions/" ;; jobs) of="jobs/" ;; esac
        found=("${(@f)$("${words[1]}" ctl complete -- "$of$PREFIX" 2>/dev/null)}")
        if [[ -n "$found" ]]; then
            compadd -S "" -- "${(@)found#$of}"
            return 0
        fi
    fi
    _lunette_words "$@"
}

"#;

/// Fish takes the words as they are.
const FISH: &str = r#"
complete -c lunette -n "__fish_seen_subcommand_from ctl; and __fish_seen_subcommand_from ls show add set replace rm resize scrub" -f -a "(lunette ctl complete -- (commandline -ct) 2>/dev/null)"
complete -c lunette -n "__fish_seen_subcommand_from ctl; and __fish_seen_subcommand_from kick" -f -a "(lunette ctl complete -- sessions/(commandline -ct) 2>/dev/null | string replace sessions/ '')"
complete -c lunette -n "__fish_seen_subcommand_from ctl; and __fish_seen_subcommand_from jobs" -f -a "(lunette ctl complete -- jobs/(commandline -ct) 2>/dev/null | string replace jobs/ '')"
"#;

/// How clap's functions for zsh begin and end.
const ZSH_BEGIN: &str = "_lunette() {";
const ZSH_END: &str = "if [ \"$funcstack[1]\" = \"_lunette\" ]; then";

/// Print what completes the command in a shell
///
/// For bash: lunette completions bash > /usr/share/bash-completion/completions/lunette. In bash, zsh and fish the
/// objects of a running server complete `lunette ctl`, too.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run<C: CommandFactory>(&self) -> Result<(), Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut C::command(), "lunette", &mut text);
        let text = String::from_utf8_lossy(&text);
        let text = match self.shell {
            Shell::Bash => format!("{text}{BASH}"),
            Shell::Fish => format!("{text}{FISH}"),
            Shell::Zsh => {
                let words = text.replacen(ZSH_BEGIN, "_lunette_words() {", 1);
                words.replacen(ZSH_END, &format!("{}{ZSH_END}", ZSH.trim_start()), 1)
            }
            _ => text.into_owned(),
        };
        output::line(text.trim_end())
    }
}
