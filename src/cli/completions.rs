//! Completions: what clap generates, and what it cannot say: a camera beside files, files behind `NAME=`.

use std::io::Write as _;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::Outcome;
use super::args::Args;

/// Behind clap's function: files and the camera where an input is typed.
const BASH: &str = r#"
_lockon_with_files() {
    _lockon "$@"
    [[ $2 != -* && ( $COMP_CWORD -eq 2 || ${#COMPREPLY[@]} -eq 0 ) ]] || return 0
    case ${COMP_WORDS[1]} in
        run | pick | match | threshold) ;;
        *) return 0 ;;
    esac
    COMPREPLY=()
    local file
    while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -f -- "$2")
    compopt -o filenames
    if [[ ${COMP_WORDS[1]} == @(run|pick) && $3 != -* && $3 != "=" && camera == "$2"* ]]; then
        COMPREPLY+=(camera)
    fi
}
complete -F _lockon_with_files -o bashdefault -o default lockon
"#;

/// In front of what ends clap's script.
const ZSH: &str = r"
_lockon_template() {
    compset -P '*='
    _files
}

_lockon_input() {
    _alternative 'cameras:camera:(camera)' 'files:file:_files'
}

";

/// Files are offered by fish itself, also behind `NAME=`.
const FISH: &str =
    "complete -c lockon -n \"__fish_lockon_using_subcommand run pick\" -a camera -d 'The first camera'\n";

/// Prints completions for a shell.
pub(super) fn print(shell: Shell) -> Result<Outcome> {
    std::io::stdout().write_all(script(shell).as_bytes())?;
    Ok(Outcome::Done)
}

fn script(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "lockon", &mut text);
    let mut text = String::from_utf8(text).expect("completions are text");
    match shell {
        Shell::Bash => text.push_str(BASH),
        Shell::Fish => text.push_str(FISH),
        Shell::Zsh => {
            let lines = text.lines().map(|line| match line {
                _ if line.contains("[NAME=]PATH:") || line.starts_with("'*::templates -- ") => {
                    line.replace(":_default'", ":_lockon_template'")
                }
                _ if line.starts_with("'::input -- ") || line.starts_with("':input -- ") => {
                    line.replace(":_default'", ":_lockon_input'")
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

    /// What is put into clap's text depends on how that looks.
    #[test]
    fn zsh_completes_files_behind_names_and_a_camera() {
        let text = script(Shell::Zsh);
        // --template and -t of `run`, the templates of `match`.
        assert_eq!(text.matches(":_lockon_template'").count(), 3);
        // The input of `run`, and that of `pick`.
        assert_eq!(text.matches(":_lockon_input'").count(), 2);
        let (functions, end) = text.split_once("_lockon_input() {").unwrap();
        assert!(functions.contains("_lockon_template() {"));
        assert!(end.trim_end().ends_with("fi"), "{end}");
    }
}
