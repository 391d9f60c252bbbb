//! Completions: clap's, with additions that clap cannot express: a camera beside files, files after `NAME=`.

use std::fmt::Write as _;

use anyhow::Result;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::Outcome;
use super::args::Args;

/// Wraps clap's function. Offers commands where only options come before, or where `man` expects a page;
/// files and the camera where an input is typed. COMMANDS and PARTS are replaced with the commands, and with
/// the subcommands that some have.
const BASH: &str = r#"
_lockon_with_files() {
    _lockon "$@"
    [[ $2 != -* ]] || return 0
    local commands='COMMANDS' at=1
    while [[ ${COMP_WORDS[at]} == -* ]]; do
        case ${COMP_WORDS[at]} in
            --log-format) [[ ${COMP_WORDS[at + 1]} == = ]] && ((at += 3)) || ((at += 2)) ;;
            *) ((at++)) ;;
        esac
    done
    [[ $at -le $COMP_CWORD ]] || return 0
    local command=${COMP_WORDS[at]}
    if [[ $at -eq $COMP_CWORD || ( $command == man && $3 != --dir ) ]]; then
        if [[ $COMP_CWORD -gt $((at + 1)) ]]; then
            case ${COMP_WORDS[COMP_CWORD - 1]} in
                PARTS
                *) commands= ;;
            esac
        fi
        COMPREPLY=($(compgen -W "$commands" -- "$2"))
        return 0
    fi
    [[ $COMP_CWORD -eq $((at + 1)) || ${#COMPREPLY[@]} -eq 0 ]] || return 0
    case $command in
        run | pick | info | match | threshold) ;;
        *) return 0 ;;
    esac
    COMPREPLY=()
    local file
    while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$2")
    compopt -o filenames
    if [[ $command == @(run|pick|info) && $3 != -* && $3 != "=" && camera == "$2"* ]]; then
        COMPREPLY+=(camera)
    fi
}
complete -F _lockon_with_files -o bashdefault -o default lockon
"#;

/// Inserted before the end of clap's script.
const ZSH: &str = r"
_lockon_template() {
    compset -P '*='
    _files
}

_lockon_input() {
    _alternative 'cameras:camera:(camera)' 'files:file:_files'
}

";

/// fish offers files by itself, also after `NAME=`.
const FISH: &str = "complete -c lockon -n \"__fish_lockon_using_subcommand run pick info\" -a camera -d 'The first camera'\n";

/// Prints completions for a shell.
pub(super) fn print(shell: Shell) -> Result<Outcome> {
    super::print(&script(shell))?;
    Ok(Outcome::Done)
}

fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    let mut program = Args::command();
    clap_complete::generate(shell, &mut program, "lockon", &mut text);
    let names = |command: &Command| {
        let names = command.get_subcommands().map(Command::get_name).filter(|name| *name != "help");
        names.collect::<Vec<_>>().join(" ")
    };
    let commands = names(&program);
    let mut text = String::from_utf8(text).expect("completions are text");
    match shell {
        Shell::Bash => {
            let parted = program.get_subcommands().filter(|command| command.has_subcommands());
            let parted = parted.filter(|command| command.get_name() != "help");
            let parts =
                parted.map(|command| format!("{}) commands='{}' ;;", command.get_name(), names(command)));
            let parts = parts.collect::<Vec<_>>().join("\n                ");
            text.push_str(&BASH.replace("COMMANDS", &commands).replace("PARTS", &parts));
        }
        Shell::Fish => {
            text.push_str(FISH);
            let condition = "__fish_lockon_using_subcommand man";
            let _ = writeln!(text, "complete -c lockon -n \"{condition}\" -f -a \"{commands}\"");
        }
        Shell::Zsh => {
            let lines = text.lines().map(|line| match line {
                _ if line.contains("[NAME=]PATH:") || line.starts_with("'*::templates -- ") => {
                    line.replace(":_default'", ":_lockon_template'")
                }
                _ if line.starts_with("'*::input -- ") || line.starts_with("':input -- ") => {
                    line.replace(":_default'", ":_lockon_input'")
                }
                _ if line.starts_with("'*::command -- ") => {
                    line.replace(":_default'", &format!(":({commands})'"))
                }
                _ => line.to_owned(),
            });
            text = lines.collect::<Vec<_>>().join("\n") + "\n";
            let end = text.find("\nif [ \"$funcstack[1]\"").unwrap_or(text.len());
            text.insert_str(end, ZSH);
        }
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The insertions depend on clap's text.
    #[test]
    fn zsh_completes_files_behind_names_and_a_camera() {
        let text = script(Shell::Zsh);
        // --template and -t of `run`, `submit` and `serve`; the templates of `match`.
        assert_eq!(text.matches(":_lockon_template'").count(), 2 * 3 + 1);
        // The inputs of `run`, `submit`, `pick` and `info`.
        assert_eq!(text.matches(":_lockon_input'").count(), 4);
        assert_eq!(text.matches(":(run ").count(), 1, "the command of `man`");
        let (functions, end) = text.split_once("_lockon_input() {").unwrap();
        assert!(functions.contains("_lockon_template() {"));
        assert!(end.trim_end().ends_with("fi"), "{end}");
    }
}
