//! `lunette completions`: what completes the command in a shell, objects of the running server among them.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

/// Asks the server for the objects that a word may become, where `lunette ctl` takes one. Bash breaks words at colons,
/// which names have, and wants what is behind the last one.
const BASH: &str = r#"
_lunette_objects() {
    local line="${COMP_LINE:0:COMP_POINT}" pattern=' ctl (.* )?(ls|show|add|set|replace|rm|resize) '
    local word="${line##* }" found one
    if [[ "$line" =~ $pattern && "$word" != -* ]]; then
        found="$("$1" ctl complete -- "$word" 2>/dev/null)"
        if [[ -n "$found" ]]; then
            local before=""
            [[ "$COMP_WORDBREAKS" == *:* ]] && before="${word%"${word##*:}"}"
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

/// The script of fish, which takes the words as they are.
const FISH: &str = r#"
complete -c lunette -n "__fish_seen_subcommand_from ctl; and __fish_seen_subcommand_from ls show add set replace rm resize" -f -a "(lunette ctl complete -- (commandline -ct) 2>/dev/null)"
"#;

/// Print what completes the command in a shell
///
/// For bash: lunette completions bash > /usr/share/bash-completion/completions/lunette. In bash and fish the objects of
/// a running server complete `lunette ctl`, too.
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
        let objects = match self.shell {
            Shell::Bash => BASH,
            Shell::Fish => FISH,
            _ => "",
        };
        output::line((String::from_utf8_lossy(&text) + objects).trim_end())
    }
}
